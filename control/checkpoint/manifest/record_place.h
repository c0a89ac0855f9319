/* Where the files of a run stood when a checkpoint was written. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_RECORD_PLACE_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_RECORD_PLACE_H

#include "control/checkpoint/manifest/manifest.h"
#include "control/events/resume_files.h"

fl_runfiles_place fl_checkpoint_place(const fl_checkpoint *checkpoint);

#endif
