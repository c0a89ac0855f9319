/* frostline as a user types it, in a folder of the test program: what it prints, and where. */
#ifndef FL_TESTS_SUPPORT_CLI_H
#define FL_TESTS_SUPPORT_CLI_H

#include "support/shell.h"

extern char *cli_folder;  /* where commands run */
extern output cli_result; /* of the last one */

/* Of the group of tests. */
int cli_make_folder(void **state);
int cli_remove_folder(void **state);

void cli_run(const char *arguments);

/* Run a command of the shell there; it must succeed. */
void cli_must_run(const char *command);

/* A new folder there: n_train images of 14 x 14 pixels and 4 classes to train on, 20 to test with.
 */
void cli_make_images(const char *name, int n_train);

/* A file of the folder. */
void cli_save(const char *name, const char *text);

/* Skip the test where Fashion-MNIST is not installed. */
void cli_need_data(void);

/* Save a job and validate it, of Fashion-MNIST unless it names another path: the exit code must be
 * this, and both outputs have these texts. */
void cli_validate(const char *job, int exit_code, const char *out, const char *err);

#endif
