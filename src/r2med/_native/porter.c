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

typedef int (*short_rule)(const uint16_t *w, int n);

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

/* Plurals. */
static void step_1a(word *x)
{
    if (!ends(x, "s"))
        return;
    if (ends(x, "sses") || ends(x, "ies"))
        x->n -= 2;
    else if (x->n > 1 && x->w[x->n - 2] != 's')
        x->n--;
}

/* -ed and -ing. */
static void step_1b(word *x, short_rule is_short)
{
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
    } else if (measure(x->w, x->n) == 1 && is_short(x->w, x->n)) {
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
    {NULL, NULL, 0},
};
static const rule step_2_lucene[] = {RULE("logi", "log"), {NULL, NULL, 0}};
static const rule step_2_nltk[] = {RULE("fulli", "ful"), {NULL, NULL, 0}};
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

/* Whether one of the suffixes was found. */
static int replace(word *x, const rule *rules)
{
    for (; rules->suffix; rules++)
        if (ends_with(x, rules->suffix, rules->length)) {
            if (measure(x->w, x->stem) > 0)
                set_end(x, rules->end);
            return 1;
        }
    return 0;
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

/* A final e goes, and of two l one. */
static void step_5(word *x, short_rule is_short)
{
    if (ends(x, "e")) {
        int m = measure(x->w, x->n);
        if (m > 1 || (m == 1 && !is_short(x->w, x->n - 1)))
            x->n--;
    }
    if (x->n > 0 && x->w[x->n - 1] == 'l' && doubled(x->w, x->n) && measure(x->w, x->n) > 1)
        x->n--;
}

int r2_porter(uint16_t *w, int n)
{
    word x = {w, n, 0};

    if (n < 3)
        return n;
    step_1a(&x);
    step_1b(&x, short_end);
    if (ends(&x, "y") && has_vowel(w, x.stem))
        w[x.n - 1] = 'i';
    if (!replace(&x, step_2))
        replace(&x, step_2_lucene);
    replace(&x, step_3);
    drop(&x);
    step_5(&x, short_end);
    return x.n;
}

/* ---- NLTK's departures ------------------------------------------------------------------------------------------ */

static const rule irregular[] = {
    RULE("skies", "sky"), RULE("sky", "sky"), RULE("dying", "die"), RULE("lying", "lie"), RULE("tying", "tie"),
    RULE("news", "news"), RULE("innings", "inning"), RULE("inning", "inning"), RULE("outings", "outing"),
    RULE("outing", "outing"), RULE("cannings", "canning"), RULE("canning", "canning"), RULE("howe", "howe"),
    RULE("proceed", "proceed"), RULE("exceed", "exceed"), RULE("succeed", "succeed"), {NULL, NULL, 0},
};

/* A word of a vowel and a consonant is short, too. */
static int nltk_short_end(const uint16_t *w, int n)
{
    return short_end(w, n) || (n == 2 && is_vowel(w, 0, 0) && !is_vowel(w, 1, 1));
}

static int ends_in_consonant(const uint16_t *w, int n)
{
    int i, vowel = 0;

    for (i = 0; i < n; i++)
        vowel = is_vowel(w, i, vowel);
    return !vowel;
}

static void nltk_step_2(word *x)
{
    while (ends(x, "alli") && measure(x->w, x->stem) > 0)
        set_end(x, "al");
    /* the l of -logi counts as part of what stands before the suffix */
    if (!replace(x, step_2) && !replace(x, step_2_nltk) && ends(x, "logi") && measure(x->w, x->stem + 1) > 0)
        x->n--;
}

int r2_porter_nltk(uint16_t *w, int n)
{
    word x = {w, n, 0};
    const rule *known;

    for (known = irregular; known->suffix; known++)
        if (known->length == n && ends_with(&x, known->suffix, n)) {
            set_end(&x, known->end);
            return x.n;
        }
    if (n < 3)
        return n;
    if (n == 4 && ends(&x, "ies"))
        x.n--;
    else
        step_1a(&x);
    if (ends(&x, "ied"))
        x.n -= x.n == 4 ? 1 : 2;
    else
        step_1b(&x, nltk_short_end);
    if (ends(&x, "y") && x.stem > 1 && ends_in_consonant(w, x.stem))
        w[x.n - 1] = 'i';
    nltk_step_2(&x);
    replace(&x, step_3);
    drop(&x);
    step_5(&x, nltk_short_end);
    return x.n;
}
