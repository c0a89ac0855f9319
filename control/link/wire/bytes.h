/* Little-endian values to and from bytes. A reader never goes past its end: a missing value reads
 * as zero, and the reader is marked as failed. */
#ifndef FL_CONTROL_LINK_WIRE_BYTES_H
#define FL_CONTROL_LINK_WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct fl_writer {
    unsigned char *at;
} fl_writer;

typedef struct fl_reader {
    const unsigned char *at;
    size_t left;
    bool short_of_bytes;
} fl_reader;

static inline void fl_put(fl_writer *w, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        *w->at++ = (unsigned char)(value >> (8 * i));
    }
}

static inline void fl_put_i64(fl_writer *w, int64_t value)
{
    fl_put(w, (uint64_t)value, 8);
}

static inline void fl_put_f64(fl_writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    fl_put(w, bits, 8);
}

static inline void fl_put_text(fl_writer *w, const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    fl_put(w, n, 4);
    memcpy(w->at, text, n);
    w->at += n;
}

static inline uint64_t fl_get(fl_reader *r, size_t n_bytes)
{
    if (r->left < n_bytes) {
        r->short_of_bytes = true;
        r->left = 0;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        value |= (uint64_t)r->at[i] << (8 * i);
    }
    r->at += n_bytes;
    r->left -= n_bytes;
    return value;
}

static inline int32_t fl_get_i32(fl_reader *r)
{
    return (int32_t)(uint32_t)fl_get(r, 4);
}

static inline int64_t fl_get_i64(fl_reader *r)
{
    return (int64_t)fl_get(r, 8);
}

static inline double fl_get_f64(fl_reader *r)
{
    uint64_t bits = fl_get(r, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* False when the byte is neither 0 nor 1: one value has one form. */
static inline bool fl_get_bool(fl_reader *r, bool *value)
{
    uint64_t byte = fl_get(r, 1);
    *value = byte == 1;
    return byte <= 1;
}

/* False when the text is longer than `max`, is incomplete, or contains a zero byte. */
static inline bool fl_get_text(fl_reader *r, char *text, size_t max)
{
    size_t n = fl_get(r, 4);
    if (n > max || n > r->left || memchr(r->at, 0, n) != NULL) {
        return false;
    }
    memcpy(text, r->at, n);
    text[n] = 0;
    r->at += n;
    r->left -= n;
    return true;
}

#endif
