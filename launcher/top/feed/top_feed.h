/* What a model of the view is fed with: replies of the control socket, asked for twice a second,
 * and the run's events and steps. Nothing here waits.
 *
 *     run directory   control.sock ──> status      events.jsonl, steps.jsonl ──> events, every step
 *     tcp://          control ──> status           events ──> events; a point of the curves a
 * status
 *
 * Of a run on this machine the files are read, since they have also what was before. */
#ifndef FL_LAUNCHER_TOP_FEED_TOP_FEED_H
#define FL_LAUNCHER_TOP_FEED_TOP_FEED_H

#include "launcher/cli/ctl/ctl_place.h"
#include "launcher/top/feed/top_ask.h"

enum { FL_TOP_NOTE_MAX = 512 };

typedef struct fl_top_feed fl_top_feed;

/* place, model: borrowed. FL_EIO when the run cannot be reached. */
fl_status fl_top_feed_open(const fl_ctl_place *place, fl_top_model *model,
                           fl_top_feed **out) FL_MUST_CHECK;
void fl_top_feed_close(fl_top_feed **feed);

/* Take what has arrived, and send the next request when it is due. False: nothing has changed. */
bool fl_top_feed_poll(fl_top_feed *feed);

/* FL_EBUSY, with what is known of it, if the run does not answer because it goes back after a loss.
 */
fl_status fl_top_feed_check_recovering(const fl_top_feed *feed) FL_MUST_CHECK;

/* Send a command; its result is then shown as the note. */
void fl_top_feed_send(fl_top_feed *feed, const fl_top_request *request);

/* What became of the last command, "" once it was seen for long enough; why what is shown may be
 * old, "" while the run answers. */
const char *fl_top_feed_note(const fl_top_feed *feed, bool *bad);
void fl_top_feed_forget_note(fl_top_feed *feed);
const char *fl_top_feed_silence(const fl_top_feed *feed);

#endif
