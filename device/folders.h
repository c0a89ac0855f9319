/* Folders of the file system. */
#ifndef FL_DEVICE_FOLDERS_H
#define FL_DEVICE_FOLDERS_H

/* Make the folder `path` and those above it where they are missing, with mode 0700.
 * failed    [PATH_MAX] out: the path of the first folder that cannot be made
 * Returns   0, or the errno of that failure */
int fl_folders_make(const char *path, char *failed);

#endif
