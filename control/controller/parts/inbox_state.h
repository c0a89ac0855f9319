/* Why messages are dropped: see inbox.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_INBOX_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_INBOX_STATE_H

/* Why a message is dropped, and counted. */
typedef enum fl_inbox_drop {
    FL_INBOX_DROP_PARTS,    /* it has too many parts */
    FL_INBOX_DROP_STRANGER, /* no living worker and no store has sent it */
    FL_INBOX_DROP_JUNK,     /* a worker has sent it, and it holds no frame */
    FL_INBOX_DROP_TYPE,     /* a frame that workers do not send */
    FL_INBOX_DROP_REPORT,   /* a report that cannot be true */
    FL_INBOX_DROP_PASS,     /* the same of a pass */
    FL_INBOX_DROPS
} fl_inbox_drop;

#endif
