/* Porter stems; porter.h says what, this file how. */
#include "porter.h"

#include <string.h>

/* Works on UTF-16 units, as Lucene does: it shows where letters outside the Basic Multilingual Plane are counted. */
typedef struct {
    uint16_t *w;
    int n;    /* length of the word */
    int stem; /* length of what stands before the suffix found last */
} word;

static int is_vowel(const uint16_t *w, int i, int after_vowel)
{
    switch (w[i]) {
    case 'a': case 'e': case 'i': case 'o': case 'u':
        return 1;
    case 'y':
        return i > 0 && !after_vowel;
    default:
        return 0;
    }
}

/* How often a consonant follows a vowel in the first n units. */
static int measure(const uint16_t *w, int n)
{
    int i, count = 0, before = 0;

    for (i = 0; i < n; i++) {
        int vowel = is_vowel(w, i, before);
        count += before && !vowel;
        before = vowel;
    }
    return count;
}

static int has_vowel(const uint16_t *w, int n)
{
    int i, vowel = 0;

    for (i = 0; i < n && !vowel; i++)
        vowel = is_vowel(w, i, vowel);
    return vowel;
}

static int doubled(const uint16_t *w, int n)
{
    int i, vowel = 0;

    if (n < 2 || w[n - 1] != w[n - 2])
        return 0;
    for (i = 0; i < n; i++)
        vowel = is_vowel(w, i, vowel);
    return !vowel;
}

/* Whether the first n units end consonant, vowel, consonant, the last not w, x or y. */
static int short_end(const uint16_t *w, int n)
{
    int i, vowel = 0, shape = 0;

    if (n < 3 || w[n - 1] == 'w' || w[n - 1] == 'x' || w[n - 1] == 'y')
        return 0;
    for (i = 0; i < n; i++) {
        vowel = is_vowel(w, i, vowel);
        shape = (shape << 1 | vowel) & 7;
    }
    return shape == 2;
}

/* Most words fail at the last letter, so that is looked at first. */
static inline int ends_with(word *x, const char *suffix, int length)
{
    int i;

    if (length > x->n || x->w[x->n - 1] != (uint16_t)suffix[length - 1])
        return 0;
    for (i = 0; i < length - 1; i++)
        if (x->w[x->n - length + i] != (uint16_t)suffix[i])
            return 0;
    x->stem = x->n - length;
    return 1;
}

#define ends(x, suffix) ends_with(x, suffix, (int)sizeof suffix - 1)

static void set_end(word *x, const char *suffix)
{
    for (x->n = x->stem; *suffix; suffix++)
        x->w[x->n++] = (uint16_t)*suffix;
}

/* Plurals and -ed, -ing. */
static void step_1ab(word *x)
{
    if (ends(x, "s")) {
        if (ends(x, "sses") || ends(x, "ies"))
            x->n -= 2;
        else if (x->n > 1 && x->w[x->n - 2] != 's')
            x->n--;
    }
    if (ends(x, "eed")) {
        if (measure(x->w, x->stem) > 0)
            x->n--;
        return;
    }
    if (!(ends(x, "ed") || ends(x, "ing")) || !has_vowel(x->w, x->stem))
        return;
    x->n = x->stem;
    if (ends(x, "at") || ends(x, "bl") || ends(x, "iz")) {
        x->w[x->n++] = 'e';
    } else if (doubled(x->w, x->n)) {
        uint16_t last = x->w[x->n - 1];
        if (last != 'l' && last != 's' && last != 'z')
            x->n--;
    } else if (measure(x->w, x->n) == 1 && short_end(x->w, x->n)) {
        x->w[x->n++] = 'e';
    }
}

typedef struct {
    const char *suffix, *end;
    int length;
} rule;

#define RULE(suffix, end) {suffix, end, (int)sizeof suffix - 1}

/* The first suffix of a step that fits is the only one tried; of two that end alike the longer stands first. */
static const rule step_2[] = {
    RULE("ational", "ate"), RULE("tional", "tion"), RULE("enci", "ence"), RULE("anci", "ance"), RULE("izer", "ize"),
    RULE("bli", "ble"), RULE("alli", "al"), RULE("entli", "ent"), RULE("eli", "e"), RULE("ousli", "ous"),
    RULE("ization", "ize"), RULE("ation", "ate"), RULE("ator", "ate"), RULE("alism", "al"), RULE("iveness", "ive"),
    RULE("fulness", "ful"), RULE("ousness", "ous"), RULE("aliti", "al"), RULE("iviti", "ive"), RULE("biliti", "ble"),
    RULE("logi", "log"), {NULL, NULL, 0},
};
static const rule step_3[] = {
    RULE("icate", "ic"), RULE("ative", ""), RULE("alize", "al"), RULE("iciti", "ic"), RULE("ical", "ic"), RULE("ful", ""), RULE("ness", ""),
    {NULL, NULL, 0},
};
static const rule step_4[] = {
    RULE("al", ""), RULE("ance", ""), RULE("ence", ""), RULE("er", ""), RULE("ic", ""), RULE("able", ""),
    RULE("ible", ""), RULE("ant", ""), RULE("ement", ""), RULE("ment", ""), RULE("ent", ""), RULE("ion", ""),
    RULE("ou", ""), RULE("ism", ""), RULE("ate", ""), RULE("iti", ""), RULE("ous", ""), RULE("ive", ""),
    RULE("ize", ""), {NULL, NULL, 0},
};

static void replace(word *x, const rule *rules)
{
    for (; rules->suffix; rules++)
        if (ends_with(x, rules->suffix, rules->length)) {
            if (measure(x->w, x->stem) > 0)
                set_end(x, rules->end);
            return;
        }
}

static void drop(word *x)
{
    const rule *rules;

    for (rules = step_4; rules->suffix; rules++)
        if (ends_with(x, rules->suffix, rules->length)) {
            if (!strcmp(rules->suffix, "ion") && !(x->stem > 0 && (x->w[x->stem - 1] == 's' || x->w[x->stem - 1] == 't')))
                continue;
            if (measure(x->w, x->stem) > 1)
                x->n = x->stem;
            return;
        }
}

int r2_porter(uint16_t *w, int n)
{
    word x = {w, n, 0};

    if (n < 3)
        return n;
    step_1ab(&x);
    if (ends(&x, "y") && has_vowel(w, x.stem))
        w[x.n - 1] = 'i';
    replace(&x, step_2);
    replace(&x, step_3);
    drop(&x);
    if (ends(&x, "e")) {
        int m = measure(w, x.n);
        if (m > 1 || (m == 1 && !short_end(w, x.n - 1)))
            x.n--;
    }
    if (x.n > 0 && w[x.n - 1] == 'l' && doubled(w, x.n) && measure(w, x.n) > 1)
        x.n--;
    return x.n;
}
