/* What became of a request that got no reply before the run ended. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_ENDED_H
#define FL_LAUNCHER_CLI_CTL_CTL_ENDED_H

/* The reply to `request`, if the record in the run directory `path` shows that what it wanted was
 * done: the run was to stop, and somebody has stopped it. A run that goes back after a loss keeps
 * that wish, and may end before its clients are connected again. NULL: the record does not, or
 * there is no memory. Free with free. */
char *fl_ctl_ended_reply(const char *path, const char *request);

#endif
