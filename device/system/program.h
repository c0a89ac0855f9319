/* The program file of this process. */
#ifndef FL_DEVICE_SYSTEM_PROGRAM_H
#define FL_DEVICE_SYSTEM_PROGRAM_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* A number that another build of the program does not share: what a build computed may be kept for
 * the next run of the same build. 0 where the file cannot be examined. */
uint64_t fl_program_build(void);

/* Its path; FL_EIO where the system does not name it. errno tells why. */
fl_status fl_program_path(char *path, size_t size_bytes) FL_MUST_CHECK;

/* The folder that the program file lies in; FL_EIO where the system does not name it. */
fl_status fl_program_folder(char *path, size_t size_bytes) FL_MUST_CHECK;

/* The program as the first word of a command that is printed for a user, also of another host that
 * has it by the same path: "frostline" where PATH leads to this file by that name, else its path,
 * quoted for a shell. Returns shown [size_bytes, 16 or more]. */
const char *fl_program_shown(char *shown, size_t size_bytes);

#endif
