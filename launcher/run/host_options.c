#include "launcher/run/host_options.h"

#include "device/text/shell_text.h"

#include <stdio.h>

const char *fl_host_options(const fl_preparation *p, char text[FL_HOST_OPTIONS_BYTES])
{
    const char *file = p->cluster_file == NULL ? "" : p->cluster_file->path;
    text[0] = '\0';
    if (p->hosts == NULL || file[0] == '\0') {
        return text;
    }
    char word[4 * FL_TEXT_MAX + 4];
    int n = snprintf(text, FL_HOST_OPTIONS_BYTES, " --hosts %s",
                     fl_shell_shown(file, word, sizeof word));
    if (p->starters != NULL) {
        snprintf(text + n, FL_HOST_OPTIONS_BYTES - (size_t)n, " --ssh");
    } else { /* its agents, which are started by hand, know this place */
        snprintf(text + n, FL_HOST_OPTIONS_BYTES - (size_t)n, " --listen %s",
                 fl_shell_shown(p->hosts->agents, word, sizeof word));
    }
    return text;
}
