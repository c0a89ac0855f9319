/* Which machine this is, for others that share a file system with it. */
#ifndef FL_DEVICE_SYSTEM_MACHINE_NAME_H
#define FL_DEVICE_SYSTEM_MACHINE_NAME_H

enum { FL_BOOT_ID_BYTES = 40, FL_HOSTNAME_BYTES = 65 };

/* The identity of the running kernel, the same in all containers, another one after the next start
 * of the machine; "": not known. Returns id. Threads: any. */
const char *fl_boot_id(char id[FL_BOOT_ID_BYTES]);

/* The hostname, or "" without one. Returns name. Threads: any. */
const char *fl_hostname(char name[FL_HOSTNAME_BYTES]);

#endif
