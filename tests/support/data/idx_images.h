/* A sound idx file of two images of 3 x 4 pixels, and both ways to read such files. Include after
 * cmocka.h. */
#ifndef FL_TESTS_SUPPORT_DATA_IDX_IMAGES_H
#define FL_TESTS_SUPPORT_DATA_IDX_IMAGES_H

#include "data/idx.h"
#include "support/data/idx_files.h"

static const uint32_t idx_image_dims[3] = {2, 3, 4};

static inline bytes idx_images(void)
{
    return idx_bytes(3, idx_image_dims, 1, 251);
}

static inline void assert_idx_images(const fl_idx *idx)
{
    bytes sound = idx_images();
    assert_int_equal(idx->rank, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(idx->dims[i], idx_image_dims[i]);
    }
    assert_int_equal(idx->size_bytes, 24);
    assert_memory_equal(idx->bytes, sound.at + 16, 24);
}

static inline fl_status idx_load(fl_status opened, fl_idx_file *file, fl_idx *out)
{
    FL_TRY(opened);
    fl_status status = fl_idx_load(file, out);
    fl_idx_close(file);
    return status;
}

static inline fl_status idx_decode(const char *name, const void *at, size_t n, int rank,
                                   fl_idx *out)
{
    fl_idx_file file;
    return idx_load(fl_idx_open_memory(name, at, n, rank, &file), &file, out);
}

static inline fl_status idx_read(const char *path, int rank, fl_idx *out)
{
    fl_idx_file file;
    return idx_load(fl_idx_open(path, rank, &file), &file, out);
}

#endif
