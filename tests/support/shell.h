/* Run a program and catch what it says. */
#ifndef FL_TESTS_SHELL_H
#define FL_TESTS_SHELL_H

enum { OUTPUT_MAX = 1 << 16 };

typedef struct output {
    int exit_code; /* 128 + signal when one ended it */
    char out[OUTPUT_MAX];
    char err[OUTPUT_MAX];
} output;

/* Run `command` by sh in `folder` (NULL: here), standard input closed. The output is without
 * warnings that other runs use the same processors. */
void run_command(const char *folder, const char *command, output *result);

/* A new, empty folder in `parent`; the caller frees the path, and removes the folder. */
char *fresh_folder(const char *parent);

#endif
