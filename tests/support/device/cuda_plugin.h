/* The plugin that a test of `devices: {kind: cuda}` uses: the stand-in, or with FL_TEST_GPU in the
 * environment the one that nvcc has built, on a GPU of this machine. */
#ifndef FL_TESTS_SUPPORT_DEVICE_CUDA_PLUGIN_H
#define FL_TESTS_SUPPORT_DEVICE_CUDA_PLUGIN_H

#include <frostline/status.h>

#include <stdbool.h>

/* Whether the tests shall run on a GPU. */
bool on_gpu(void);

/* Let what begins from now on load the plugin that nvcc has built; the test is skipped, with the
 * reason, where one worker cannot use a GPU with it. */
void use_gpu(void);

/* The same, or without FL_TEST_GPU the stand-in with these options (FROSTLINE_STANDIN). */
void use_cuda(const char *options);

/* The same for a test of what only the stand-in can do: on a GPU it is skipped. */
void use_standin(const char *options);

/* In a process that has loaded the stand-in: the n-th call of this entry of its table from now on
 * fails with `code`. */
void fail_standin(const char *entry, int n, int code);

#endif
