#include "launcher/run/host_options.h"

#include <stdio.h>

const char *fl_host_options(const fl_preparation *p, char text[FL_HOST_OPTIONS_BYTES])
{
    const char *file = p->cluster_file == NULL ? "" : p->cluster_file->path;
    text[0] = '\0';
    if (p->hosts == NULL || file[0] == '\0') {
        return text;
    }
    int n = snprintf(text, FL_HOST_OPTIONS_BYTES, " --hosts %s", file);
    if (p->starters != NULL) {
        snprintf(text + n, FL_HOST_OPTIONS_BYTES - (size_t)n, " --ssh");
    } else { /* its agents, which are started by hand, know this place */
        snprintf(text + n, FL_HOST_OPTIONS_BYTES - (size_t)n, " --listen %s", p->hosts->agents);
    }
    return text;
}
