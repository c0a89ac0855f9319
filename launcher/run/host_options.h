/* The command that continues a run names the hosts that it had. */
#ifndef FL_LAUNCHER_RUN_HOST_OPTIONS_H
#define FL_LAUNCHER_RUN_HOST_OPTIONS_H

#include "launcher/run/plan/preparation.h"

/* Each character of a name takes four at most, as a shell reads it. */
enum { FL_HOST_OPTIONS_BYTES = 4 * (FL_TEXT_MAX + FL_HOSTS_ENDPOINT_MAX) + 48 };

/* The options that give the run its hosts, " --hosts FILE --listen ADDRESS"; "": those of its job
 * need none, nor do those of an engine, whose tasks are started again. Returns text. */
const char *fl_host_options(const fl_preparation *p, char text[FL_HOST_OPTIONS_BYTES]);

#endif
