/* Checks of a plugin's shared object that spare the process a signal. */
#ifndef FL_LAUNCHER_RUN_MODEL_PLUGIN_FILE_H
#define FL_LAUNCHER_RUN_MODEL_PLUGIN_FILE_H

#include <frostline/plugin.h>

#include <stdint.h>

/* FL_EFORMAT when the file is shorter than the segments that its program headers name: dlopen maps
 * them and would read behind the end of the file (SIGBUS). What is not a 64-bit ELF file, or cannot
 * be read, is left to dlopen. */
fl_status fl_plugin_check_file(const char *path) FL_MUST_CHECK;

/* A hash (XXH3) of the whole file; never 0. FL_EIO. */
fl_status fl_plugin_print_file(const char *path, uint64_t *print) FL_MUST_CHECK;

/* The plugin that `symbol`, which dlsym gave for FL_PLUGIN_SYMBOL, is: FL_ENOTSUP with both
 * versions if it was compiled for another one, FL_EFORMAT if it is something else. Nothing in the
 * shared object is called. */
fl_status fl_plugin_check_symbol(const void *symbol, const fl_plugin **plugin) FL_MUST_CHECK;

#endif
