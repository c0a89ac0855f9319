#ifndef FL_DEVICE_SYSTEM_FILES_COUNT_FILES_H
#define FL_DEVICE_SYSTEM_FILES_COUNT_FILES_H

/* How many descriptors this process has; INT_MAX: that cannot be seen, as where it may have no
 * further one. */
int fl_count_files(void);

#endif
