/* Porter's stemmer on UTF-16 units, as Lucene has it. Plain C, no Python. */
#ifndef R2MED_PORTER_H
#define R2MED_PORTER_H

#include <stdint.h>

/* The stem replaces the word in place; its length is returned. There must be room for one unit more. */
int r2_porter(uint16_t *w, int n);

#endif
