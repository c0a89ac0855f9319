/* What a path names if it is not a regular file, as messages say it. */
#ifndef FL_DEVICE_SYSTEM_FILES_FILE_KIND_H
#define FL_DEVICE_SYSTEM_FILES_FILE_KIND_H

#include <sys/types.h>

/* "a folder", "a symbolic link", "a pipe", "a socket", "a device", "a file". A constant. */
const char *fl_file_kind(mode_t mode);

#endif
