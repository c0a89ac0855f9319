/* Which kernels a CPU device uses: the best of the processor, or those that FROSTLINE_KERNELS of
 * the environment names. */
#ifndef FL_DEVICE_CPU_CPU_KERNELS_H
#define FL_DEVICE_CPU_CPU_KERNELS_H

#include <frostline/status.h>

/* Whether FROSTLINE_KERNELS, if it is set, names a set that this processor has: else FL_EINVAL with
 * those that it has. Threads: any. */
fl_status fl_device_cpu_check_kernels(void) FL_MUST_CHECK;

#endif
