/* The form of a manifest, for the files that write and read it. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_MANIFEST_MEMBERS_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_MANIFEST_MEMBERS_H

#include "control/checkpoint/manifest/struct_json.h"

#define FL__CHECKPOINT_FORMAT "frostline-checkpoint"

/* Of an fl_checkpoint; before them the file has "format" and "version", behind them "xxh64". */
extern const fl_member fl__checkpoint_members[];

/* The end of the file, after the bytes that the hash is of. */
#define FL__CHECKPOINT_TRAILER "  \"xxh64\": \"%016llx\"\n}\n"
enum { FL__CHECKPOINT_TRAILER_BYTES = 2 + 9 + 16 + 1 + 3 };

#endif
