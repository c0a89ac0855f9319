/* Which kind of machine this is, in words: hosts of one kind need the same time for the same layer,
 * so that what was measured on one of them counts for all. */
#ifndef FL_DEVICE_MACHINE_MACHINE_KIND_H
#define FL_DEVICE_MACHINE_MACHINE_KIND_H

#include <frostline/tensor.h>

enum { FL_MACHINE_KIND_TEXT = 160 };

typedef struct fl_machine_kind {
    char processor[FL_MACHINE_KIND_TEXT]; /* with the instruction set of its kernels */
    char gpus[FL_MACHINE_KIND_TEXT];      /* each name once, in order; "": there are none */
} fl_machine_kind;

/* root  where /proc lies: "" but in tests. No driver is loaded. */
void fl_machine_kind_read(const char *root, fl_machine_kind *out);

/* What of it counts for a job on devices of this kind. Pure. */
const char *fl_machine_kind_of(const fl_machine_kind *kind, fl_device_kind devices);

#endif
