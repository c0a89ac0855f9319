/* NCCL, loaded at run time. */
#ifndef FL_AUTODP_NCCL_LIBRARY_H
#define FL_AUTODP_NCCL_LIBRARY_H

#include "autodp/nccl/abi.h"

#include <frostline/status.h>

/* Its functions, by their names without "nccl". */
typedef struct fl_nccl {
    int version; /* as ncclGetVersion gives it */
#define FL__NCCL_MEMBER(result, name, arguments) result(*name) arguments;
    FL__NCCL_FUNCTIONS(FL__NCCL_MEMBER)
    FL__NCCL_LATER_FUNCTIONS(FL__NCCL_MEMBER)
#undef FL__NCCL_MEMBER
} fl_nccl;

/* The file that FROSTLINE_NCCL names, else libnccl.so.2. */
const char *fl_nccl_file(void);

/* Only a GPU uses the system's library; devices of another kind use one where FROSTLINE_NCCL names
 * it: else FL_ENOTSUP. kind: as in fl_device_ops. */
/* Whether FROSTLINE_NCCL names it. */
bool fl_nccl_is_named(void);

fl_status fl_nccl_check_kind(const char *kind) FL_MUST_CHECK;

/* Load the file that FROSTLINE_NCCL names, else libnccl.so.2 from where the system's loader finds
 * it. It stays loaded. FL_ENOTSUP, with one line, if there is none, if it lacks a function, or if
 * its version is not from 2.18 to 2.x. */
fl_status fl_nccl_load(fl_nccl *out) FL_MUST_CHECK;

/* Whether the driver can run the CUDA that the library was built with, which its file tells: each
 * call of the library fails otherwise. FL_ENOTSUP, with both versions. A library that does not tell
 * suits any driver. driver_version: as in fl_native. */
fl_status fl_nccl_check_driver(const fl_nccl *nccl, int driver_version) FL_MUST_CHECK;

/* The CUDA that a library's file names, as in "NCCL version 2.28.9+cuda13.0": 13000; 0: none. Pure.
 */
int fl_nccl_cuda_of(const char *file, size_t size_bytes);

enum { FL_NCCL_VERSION_TEXT = 32 };

/* "2.28.9". Returns text. */
const char *fl_nccl_version_text(int version, char text[FL_NCCL_VERSION_TEXT]);

#endif
