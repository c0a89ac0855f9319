/* The version of the C API, by which a plugin or a table of another version is refused. */
#ifndef FROSTLINE_VERSION_H
#define FROSTLINE_VERSION_H

#include <stdint.h>

/* Goes up with every change that a compiled plugin would not survive: of a table of functions, of a
 * struct that crosses the interface, of what a function takes.
 *   1  before versions were recorded
 *   2  kernels take structs; tables have heads; a plugin exports a struct
 *   3  a loss has an entry for predictions
 *   4  a metric may be computed from all sums; cross-entropy counts class 1
 *   5  a job has fields for text and for fine-tuning
 *   6  a job has a precision, and models a type of activations
 *   7  masks draw from device memory
 *   8  a job has hosts, with their memory, speed and profile */
enum { FL_API_VERSION = 8 };

/* What every public table of functions begins with:
 *     static const fl_layer_ops ops = {.head = FL_TABLE_HEAD(fl_layer_ops), .kind = "mine", ...};
 */
typedef struct fl_table_head {
    uint32_t version;    /* FL_API_VERSION when the table was compiled */
    uint32_t size_bytes; /* of the table */
} fl_table_head;

#define FL_TABLE_HEAD(type)                                                                        \
    {                                                                                              \
        FL_API_VERSION, sizeof(type)                                                               \
    }

#endif
