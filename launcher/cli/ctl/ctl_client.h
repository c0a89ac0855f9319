/* The other end of a run's control socket. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_CLIENT_H
#define FL_LAUNCHER_CLI_CTL_CTL_CLIENT_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_ctl_client_link fl_ctl_client_link;

/* Connect to the live run in the directory `path`; `events`: to what it publishes, instead of to
 * where it takes requests. FL_EIO when that cannot be. One thread. */
fl_status fl_ctl_client_open(const char *path, bool events, fl_ctl_client_link **out) FL_MUST_CHECK;
/* The same over a network, to a run whose control.listen is `endpoint`.
 * key     file of this client's secret key
 * server  file of the run's public key
 * Returns FL_EINVAL for files that hold no key. Whether the run listens and
 * knows the key shows when no answer comes: the message tells the cases apart. */
fl_status fl_ctl_client_open_far(const char *endpoint, bool events, const char *key,
                                 const char *server, fl_ctl_client_link **out) FL_MUST_CHECK;
void fl_ctl_client_close(fl_ctl_client_link **link);

/* Send a request and wait for its reply: *reply is borrowed until the next call and ended by 0.
 * Returns FL_EPEER when the run ends first, FL_EDEADLINE after timeout_ms. */
fl_status fl_ctl_client_ask(fl_ctl_client_link *link, const char *request, int64_t timeout_ms,
                            const char **reply) FL_MUST_CHECK;

/* The same, and repeat a request that is refused because the run goes back after a loss, until it
 * is taken or timeout_ms have passed: *reply is then the last refusal. */
fl_status fl_ctl_client_insist(fl_ctl_client_link *link, const char *request, int64_t timeout_ms,
                               const char **reply) FL_MUST_CHECK;

/* FL_EBUSY, with what is known of it, if the record of a run that gave no answer says that it goes
 * back after a loss. A far run has no record here: FL_OK. */
fl_status fl_ctl_client_check_recovering(const fl_ctl_client_link *link) FL_MUST_CHECK;

/* Whether the run has no descriptor left for this client, which gets its connection once other
 * clients have ended (waiting_room.h). As far as the calls above have seen. */
bool fl_ctl_client_waits_outside(const fl_ctl_client_link *link);

/* The two halves of fl_ctl_client_ask: for a caller that does other work meanwhile, or that has
 * several requests pending. Replies come in any order; each bears its request's id. timeout_ms 0
 * only looks. */
fl_status fl_ctl_client_send(fl_ctl_client_link *link, const char *request) FL_MUST_CHECK;
fl_status fl_ctl_client_receive(fl_ctl_client_link *link, int64_t timeout_ms,
                                const char **reply) FL_MUST_CHECK;

/* Wait for an event, for at most timeout_ms (FL_EDEADLINE). *line as above; *sequence counts up by
 * one unless some were lost. Returns FL_EPEER when the run has ended. */
fl_status fl_ctl_client_event(fl_ctl_client_link *link, int64_t timeout_ms, const char **line,
                              int64_t *sequence) FL_MUST_CHECK;

#endif
