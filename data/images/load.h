/* All files of a data set of images, once, on several threads. */
#ifndef FL_DATA_IMAGES_LOAD_H
#define FL_DATA_IMAGES_LOAD_H

#include "data/images/folder.h"
#include "data/images/image.h"

/* Read a file, decode it and resize it: out [channels, size, size]. hash: of the file's bytes; may
 * be NULL. FL_EIO, FL_EFORMAT, FL_ENOMEM */
fl_status fl__image_load(const char *path, int channels, int64_t size, uint8_t *out,
                         uint64_t *hash) FL_MUST_CHECK;

/* Every file of the folder.
 * pixels     [folder->n, channels, size, size], or NULL: each is decoded and forgotten
 * hash       [folder->n] out
 * n_threads  0: as many as there are processors
 * Returns    as above, of the first file that fails, whichever thread has it */
fl_status fl__images_load(const fl_image_folder *folder, int channels, int64_t size,
                          uint8_t *pixels, uint64_t *hash, int n_threads) FL_MUST_CHECK;

#endif
