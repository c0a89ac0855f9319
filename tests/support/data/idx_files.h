/* Small idx files in a folder of their own, for tests. */
#ifndef FL_TESTS_SUPPORT_DATA_IDX_FILES_H
#define FL_TESTS_SUPPORT_DATA_IDX_FILES_H

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { FILE_MAX = 1 << 16 };

/* The bytes of a file. */
typedef struct bytes {
    size_t n;
    uint8_t at[FILE_MAX];
} bytes;

static inline void put_u32(bytes *b, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        b->at[b->n++] = (uint8_t)(value >> shift);
    }
}

/* An idx array of unsigned bytes whose element i is (7 * i + add) % modulo. */
static inline bytes idx_bytes(int rank, const uint32_t *dims, uint32_t add, uint32_t modulo)
{
    bytes b = {.n = 4, .at = {0, 0, 8, (uint8_t)rank}};
    size_t size = 1;
    for (int i = 0; i < rank; i++) {
        put_u32(&b, dims[i]);
        size *= dims[i];
    }
    assert(b.n + size <= FILE_MAX);
    for (size_t i = 0; i < size; i++) {
        b.at[b.n++] = (uint8_t)((7 * i + add) % modulo);
    }
    return b;
}

/* Level 0 stores, so that every byte's place is known; level 9 packs. */
static inline bytes gzip_bytes(const bytes *plain, int level)
{
    bytes b = {0};
    z_stream z = {0};
    int status = deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    assert(status == Z_OK);
    z.next_in = (z_const Bytef *)plain->at;
    z.avail_in = (uInt)plain->n;
    z.next_out = b.at;
    z.avail_out = FILE_MAX;
    status = deflate(&z, Z_FINISH);
    assert(status == Z_STREAM_END);
    b.n = z.total_out;
    deflateEnd(&z);
    (void)status;
    return b;
}

static inline void write_file(const char *folder, const char *name, const bytes *b)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert(file != NULL);
    size_t n = fwrite(b->at, 1, b->n, file);
    int closed = fclose(file);
    assert(n == b->n && closed == 0);
    (void)n;
    (void)closed;
}

static inline void remove_file(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static const char *const idx_names[4] = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
};

enum { N_TRAIN = 5, N_TEST = 3, SIDE_Y = 4, SIDE_X = 6, N_CLASSES = 10 };

/* What a sound data set of 5 and 3 images of 4 x 6 pixels has in its i-th file. */
static inline bytes sound_bytes(int i)
{
    uint32_t n = i < 2 ? N_TRAIN : N_TEST;
    const uint32_t images[3] = {n, SIDE_Y, SIDE_X};
    return i % 2 == 0 ? idx_bytes(3, images, (uint32_t)i, 251)
                      : idx_bytes(1, &n, i == 1 ? 2 : 1, N_CLASSES);
}

static inline void write_sound(const char *folder)
{
    for (int i = 0; i < 4; i++) {
        bytes b = sound_bytes(i);
        write_file(folder, idx_names[i], &b);
    }
}

/* The two files of one split, "train" or "t10k". */
static inline void write_split(const char *folder, const char *prefix, uint32_t n, uint32_t height,
                               uint32_t width, uint32_t n_classes)
{
    char name[64];
    const uint32_t images[3] = {n, height, width};
    bytes b = idx_bytes(3, images, 3, 251);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    write_file(folder, name, &b);
    b = idx_bytes(1, &n, 1, n_classes);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    write_file(folder, name, &b);
}

#endif
