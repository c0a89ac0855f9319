/* Files that may be something else: a folder that came from elsewhere may hold a pipe or a device
 * under the name of a file. */
#ifndef FL_DEVICE_SYSTEM_FILES_REGULAR_FILE_H
#define FL_DEVICE_SYSTEM_FILES_REGULAR_FILE_H

/* Open the regular file `path` to read. Does not wait, as opening a pipe would.
 *   dir_fd   the folder that `path` is below, unless it begins with a slash; AT_FDCWD: the working
 *            directory
 *   why      out: what failed, until the thread's next call of strerror; may be NULL
 * Returns the file, which the caller closes; -1: there is no such regular file. Threads: any. */
int fl_regular_file_open(int dir_fd, const char *path, const char **why);

/* Make an empty file `path` below the folder dir_fd, in the place of what has this name: a link is
 * removed, not followed, and a pipe does not wait for its reader.
 * Returns   the file, to write, which the caller closes; -1: errno says why. Threads: any. */
int fl_regular_file_replace(int dir_fd, const char *path, unsigned mode);

#endif
