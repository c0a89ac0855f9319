/* Why messages are dropped: see inbox.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_INBOX_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_INBOX_STATE_H

/* Why a message is dropped. */
typedef enum fl_inbox_drop {
    FL_INBOX_DROP_PARTS,    /* it has too many parts */
    FL_INBOX_DROP_STRANGER, /* no living worker and no store has sent it */
    FL_INBOX_DROPS
} fl_inbox_drop;

#endif
