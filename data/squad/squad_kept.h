/* Windows that are kept in a file of the user's cache. */
#ifndef FL_DATA_SQUAD_SQUAD_KEPT_H
#define FL_DATA_SQUAD_SQUAD_KEPT_H

#include "data/squad/windows.h"
#include "data/tokens/kept.h"

/* Read both splits and check all of them; as fl__kept_read. split [2] is unchanged unless the file
 * was read. */
fl_status fl__squad_kept_read(const char *path, const fl_kept_key *key, int32_t n_ids,
                              const fl_token_frame *frame, fl_squad_split split[2],
                              bool *found) FL_MUST_CHECK;
fl_status fl__squad_kept_write(const char *path, const fl_kept_key *key,
                               const fl_squad_split split[2]) FL_MUST_CHECK;

#endif
