/* Named tensors in files, in the safetensors format that Hugging Face's libraries read and write:
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON: {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__": {text:
 * text}} data      the tensors' elements without gaps, row-major, little-endian
 *
 * A file is checked as a whole when it is opened; elements are read and written by position, so
 * several threads or processes may work on different tensors of one file at once. It is read by
 * calls, not mapped: a file that another process cuts short is then an error, not a signal. */
#ifndef FL_NN_SAFETENSORS_SAFETENSORS_H
#define FL_NN_SAFETENSORS_SAFETENSORS_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* name in the file, bytes of an element */
#define FL_ST_DTYPE_MAP(X)                                                                         \
    X(FL_ST_F32, "F32", 4)                                                                         \
    X(FL_ST_F16, "F16", 2)                                                                         \
    X(FL_ST_BF16, "BF16", 2)                                                                       \
    X(FL_ST_F64, "F64", 8)                                                                         \
    X(FL_ST_I64, "I64", 8)                                                                         \
    X(FL_ST_U64, "U64", 8)                                                                         \
    X(FL_ST_I32, "I32", 4)                                                                         \
    X(FL_ST_U32, "U32", 4)                                                                         \
    X(FL_ST_I16, "I16", 2)                                                                         \
    X(FL_ST_U16, "U16", 2)                                                                         \
    X(FL_ST_I8, "I8", 1)                                                                           \
    X(FL_ST_U8, "U8", 1)                                                                           \
    X(FL_ST_BOOL, "BOOL", 1)                                                                       \
    X(FL_ST_F8_E4M3, "F8_E4M3", 1)                                                                 \
    X(FL_ST_F8_E5M2, "F8_E5M2", 1)

typedef enum fl_st_dtype {
#define FL_ST_ENUM(name, text, size) name,
    FL_ST_DTYPE_MAP(FL_ST_ENUM)
#undef FL_ST_ENUM
} fl_st_dtype;

/* The name in the file, as in "BF16", and the bytes of one element. */
const char *fl_st_dtype_name(fl_st_dtype dtype);
size_t fl_st_dtype_size(fl_st_dtype dtype);

enum { FL_ST_DIMS_MAX = 8 };

/* ---- reading ---- */

typedef struct fl_safetensors fl_safetensors;

typedef struct fl_st_tensor {
    const char *name; /* borrowed from the file */
    fl_st_dtype dtype;
    int n_dims;
    int64_t dims[FL_ST_DIMS_MAX];
    int64_t n_elements;
    int64_t begin_byte; /* in its file */
    int part;           /* which of the files */
} fl_st_tensor;

/* Open one file, an index of several (*.index.json), or a folder that holds model.safetensors or
 * model.safetensors.index.json. Everything is validated: lengths, the header's JSON (no name
 * twice), shapes, offsets (no overlap, no gap, nothing behind the last tensor), and for an index
 * that each tensor is where it says. Returns FL_EIO, FL_EFORMAT with the file, the tensor, what was
 * found and what is allowed, or FL_ENOMEM. */
fl_status fl_safetensors_open(const char *path, fl_safetensors **out) FL_MUST_CHECK;

/* The same for one file, `name` in the folder that folder_fd has open, which is about to be read as
 * a whole: the system begins to. */
fl_status fl_safetensors_open_at(int folder_fd, const char *name,
                                 fl_safetensors **out) FL_MUST_CHECK;
void fl_safetensors_close(fl_safetensors **file);

/* Sorted by name. */
int fl_safetensors_n(const fl_safetensors *file);
const fl_st_tensor *fl_safetensors_at(const fl_safetensors *file, int i);

/* NULL if there is none of this name. Threads: any. */
const fl_st_tensor *fl_safetensors_find(const fl_safetensors *file, const char *name);

/* The text under `key` in __metadata__ (of the first file), borrowed; NULL: none. */
const char *fl_safetensors_metadata(const fl_safetensors *file, const char *key);

/* Elements first .. first + n - 1 as fp32: of F32, F16 and BF16 exactly; FL_ENOTSUP names any other
 * type. FL_EIO, FL_EINVAL for elements that the tensor does not have. Threads: any. */
fl_status fl_safetensors_read(const fl_safetensors *file, const fl_st_tensor *tensor, int64_t first,
                              int64_t n, float *to) FL_MUST_CHECK;

/* FL_EIO if a file was written to since it was opened: what was read since then is then of no use.
 * Threads: any. */
fl_status fl_safetensors_check_unchanged(const fl_safetensors *file) FL_MUST_CHECK;

/* The same for the file of this tensor alone. */
fl_status fl_safetensors_check_tensor(const fl_safetensors *file,
                                      const fl_st_tensor *tensor) FL_MUST_CHECK;

/* ---- writing ---- */

typedef struct fl_st_spec {
    const char *name; /* borrowed while the layout is made */
    int n_dims;
    int64_t dims[FL_ST_DIMS_MAX];
} fl_st_spec;

typedef struct fl_st_pair {
    const char *key, *value;
} fl_st_pair;

/* Where everything will lie in a file. The same arguments give the same layout in every process, so
 * each can write its own tensors. */
typedef struct fl_st_layout {
    fl_st_dtype dtype; /* of all tensors: F32, F16 or BF16 */
    int n;
    int64_t *begin_byte; /* [n] in the file */
    int64_t *n_elements; /* [n] */
    char *header;        /* [header_bytes] with the 8 bytes of its length; owned */
    int64_t header_bytes;
    int64_t total_bytes;
} fl_st_layout;

/* Returns FL_EINVAL for a name given twice, a reserved one, or a type that is not written,
 * FL_ENOMEM. Call fini after a failure, too. */
fl_status fl_st_layout_init(fl_st_layout *layout, fl_st_dtype dtype, const fl_st_spec *spec, int n,
                            const fl_st_pair *metadata, int n_metadata) FL_MUST_CHECK;
void fl_st_layout_fini(fl_st_layout *layout);

/* Make the file at `fd` (open for writing, empty) as long as it will be and write its header, so
 * that a full disk shows now. FL_EIO. */
fl_status fl_st_layout_create(const fl_st_layout *layout, int fd, const char *path) FL_MUST_CHECK;

/* Write elements first .. first + n - 1 of tensor i, rounded to nearest (ties to even) where the
 * file's type is narrower. path: for messages. FL_EIO. Threads: any, for different elements. */
fl_status fl_st_layout_write(const fl_st_layout *layout, int fd, const char *path, int i,
                             int64_t first, int64_t n, const float *from) FL_MUST_CHECK;

#endif
