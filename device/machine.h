/* What this machine can give. */
#ifndef FL_DEVICE_MACHINE_H
#define FL_DEVICE_MACHINE_H

#include <stdint.h>

/* Bytes of memory that new allocations can take before the kernel swaps or kills: what the machine
 * has available, and no more than the limit of any control group (version 2) that holds this
 * process. INT64_MAX where the system does not say. Threads: any. */
int64_t fl_machine_available_bytes(void);

/* The pure half: the number of bytes that the line "key:  N kB" of a text in the form of
 * /proc/meminfo states; INT64_MAX if there is no such line. */
int64_t fl_meminfo_bytes(const char *text, const char *key);

#endif
