/* Who may read a file with a secret key. */
#ifndef FL_CONTROL_LINK_KEYS_KEY_FILE_H
#define FL_CONTROL_LINK_KEYS_KEY_FILE_H

#include <frostline/status.h>

#include <sys/stat.h>

/* Whether a file keeps its secret:
 *   - only its owner has rights to it; or
 *   - root owns it, its group may read it, and it is in memory (tmpfs): so Kubernetes writes the
 *     files of a Secret for a pod with fsGroup, whose user is not root. On a disk, and of another
 *     owner, such a file is refused: its group may be that of all users.
 * Pure. */
bool fl_key_file_is_private(const struct stat *info, bool in_memory);

/* Check that of an open file; FL_EINVAL says what was found and what is allowed. */
fl_status fl_key_file_check(int fd, const char *path) FL_MUST_CHECK;

#endif
