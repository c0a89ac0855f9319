/* A small file system, which a test can fill. */
#ifndef FL_TESTS_SUPPORT_SMALL_DISK_H
#define FL_TESTS_SUPPORT_SMALL_DISK_H

#include <stdbool.h>

/* Mount one over the folder, for this process and its children alone: "size=512k". False: the
 * kernel does not let this user do so. The process has no threads. */
bool small_disk_mount(const char *folder, const char *options);

/* Write the file FOLDER/filler until nothing more can be written in the folder. */
void small_disk_fill(const char *folder);

#endif
