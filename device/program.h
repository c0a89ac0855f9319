/* The program file of this process. */
#ifndef FL_DEVICE_PROGRAM_H
#define FL_DEVICE_PROGRAM_H

#include <stdint.h>

/* A number that another build of the program does not share: what a build computed may be kept for
 * the next run of the same build. 0 where the file cannot be examined. */
uint64_t fl_program_build(void);

#endif
