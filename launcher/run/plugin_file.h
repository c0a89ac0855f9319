/* Checks of a plugin's shared object that spare the process a signal. */
#ifndef FL_LAUNCHER_RUN_PLUGIN_FILE_H
#define FL_LAUNCHER_RUN_PLUGIN_FILE_H

#include <frostline/dataset.h>

#include <stdbool.h>

/* FL_EFORMAT when the file is shorter than the segments that its program headers name: dlopen maps
 * them and would read behind the end of the file (SIGBUS). What is not a 64-bit ELF file, or cannot
 * be read, is left to dlopen. */
fl_status fl_plugin_check_file(const char *path) FL_MUST_CHECK;

/* False when the symbol, which dlsym gave, is data. */
bool fl_plugin_is_function(const void *symbol);

/* FL_EFORMAT when the data set lacks a function that it must have. */
fl_status fl_plugin_check_data(const fl_dataset_ops *ops) FL_MUST_CHECK;

#endif
