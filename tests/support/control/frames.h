/* Frames between head and workers: one of each type, whose values differ. */
#ifndef FL_TESTS_SUPPORT_CONTROL_FRAMES_H
#define FL_TESTS_SUPPORT_CONTROL_FRAMES_H

#include "control/link/wire/wire.h"

enum { N_FRAME_TYPES = 35, N_FRAME_IDS = 6 };

extern const fl_wire_type frame_types[N_FRAME_TYPES];
extern const int64_t frame_ids[N_FRAME_IDS]; /* of the frame of type FL_WIRE_LEDGER */

/* The plan of these frames: two replicas of three stages on seven workers. */
fl_plan frame_plan(void);

fl_wire_message frame_of(fl_wire_type type);

/* Exactly as long as the frame, so that a sanitizer sees every byte read beyond it. Free it. */
unsigned char *frame_encode(const fl_wire_message *frame, size_t *size_bytes);

fl_status frame_decode(const unsigned char *bytes, size_t size_bytes, fl_wire_message *out);

#endif
