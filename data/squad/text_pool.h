/* Texts in one piece of memory. */
#ifndef FL_DATA_SQUAD_TEXT_POOL_H
#define FL_DATA_SQUAD_TEXT_POOL_H

#include "data/tokenizer/tokenizer.h"

/* A struct of zeros holds no text. */
typedef struct fl_text_pool {
    int64_t n;
    int64_t *begin; /* [n + 1] where each text begins; NULL without a text */
    char *bytes;    /* [begin[n]] */
    size_t begin_room, bytes_room;
} fl_text_pool;

/* Append a copy of the text. FL_ENOMEM */
fl_status fl__text_pool_add(fl_text_pool *pool, const char *bytes, size_t n_bytes) FL_MUST_CHECK;
void fl__text_pool_fini(fl_text_pool *pool);

/* Borrowed. */
fl_text fl__text_pool_get(const fl_text_pool *pool, int64_t i);
int64_t fl__text_pool_bytes(const fl_text_pool *pool);

/* Whether the arrays of a pool that was read from a file fit together. */
bool fl__text_pool_is_sound(const fl_text_pool *pool, int64_t n_bytes);

#endif
