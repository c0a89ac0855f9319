/* Folders and files of a test's own, below TMPDIR (else /tmp). What goes wrong ends the test. */
#ifndef FL_TESTS_SUPPORT_FOLDER_H
#define FL_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>

enum { FOLDER_SIZE = 64 }; /* what a path needs; short, for a socket's has to fit into 108 bytes */

/* TMPDIR, else /tmp. */
const char *temporary(void);

/* A new, empty folder; a new file of n bytes. The caller removes them. */
void make_folder(char path[FOLDER_SIZE]);
void make_file(char path[FOLDER_SIZE], const void *bytes, size_t n);

/* A folder with all that is in it: 0, or -1. */
int remove_folder(const char *path);

#endif
