/* A run of a small ViT in a folder: what tests share that use the model that it left. */
#ifndef FL_TESTS_SUPPORT_RUNS_USED_H
#define FL_TESTS_SUPPORT_RUNS_USED_H

#include "support/folder.h"
#include "support/program.h"

#include <jansson.h>

#define USED_PROGRAM FL_BINARY_DIR "/frostline "

enum { USED_TRAINING = 120, USED_TESTS = 46, USED_COMMAND = 1024 };

extern char used_root[FOLDER_SIZE];

/* Of the group of tests: job.yaml, and its run in run/. data: what the run is trained on; other:
 * other images, and none to train on. */
int used_set_up(void **state);
int used_tear_down(void **state);

/* A file of the folder. */
void used_write(const char *name, const char *text);

/* The JSON that the last command has printed; a number of it. */
json_t *used_output(void);
double used_number(const json_t *object, const char *key);

#endif
