/* The command that continues a run names the hosts that it had. */
#ifndef FL_LAUNCHER_RUN_PLAN_HOST_OPTIONS_H
#define FL_LAUNCHER_RUN_PLAN_HOST_OPTIONS_H

#include "launcher/run/plan/preparation.h"
#include "launcher/run/runs/run_again.h"

/* Each character of a name takes four at most, as a shell reads it. */
enum { FL_HOST_OPTIONS_BYTES = 4 * (2 * FL_TEXT_MAX + FL_HOSTS_ENDPOINT_MAX) + 64 };

/* The options that give the run its hosts. False, and none: it has one host, or an engine starts
 * its tasks again. */
bool fl_host_options_find(const fl_preparation *p, fl_run_again_hosts *out);

/* The same as text, " --hosts FILE --listen ADDRESS"; "": the hosts of a job may need none. Returns
 * text. */
const char *fl_host_options(const fl_preparation *p, char text[FL_HOST_OPTIONS_BYTES]);

#endif
