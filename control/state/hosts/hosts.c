#include "control/state/hosts/hosts.h"

#include <stdio.h>
#include <string.h>

int fl_hosts_of(const fl_hosts *hosts, int rank)
{
    for (int i = 0; i < hosts->n; i++) {
        if (rank >= hosts->host[i].first && rank < hosts->host[i].first + hosts->host[i].n) {
            return i;
        }
    }
    return -1;
}

int fl_hosts_find(const fl_hosts *hosts, const char *name)
{
    for (int i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->host[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int fl_hosts_n_ranks(const fl_hosts *hosts)
{
    const fl_host *last = &hosts->host[hosts->n - 1];
    return last->first + last->n;
}

int fl_hosts_add(fl_hosts *hosts, const char *name, const char *address, int n)
{
    int first = fl_hosts_n_ranks(hosts);
    fl_host *host = &hosts->host[hosts->n];
    *host = (fl_host){.first = first, .n = n};
    snprintf(host->name, sizeof host->name, "%s", name);
    snprintf(host->address, sizeof host->address, "%s", address);
    return hosts->n++;
}

const char *fl_hosts_ports_text(const uint16_t ports[2], char text[FL_HOSTS_PORTS_TEXT])
{
    snprintf(text, FL_HOSTS_PORTS_TEXT, ports[0] == 0 ? "any port" : "the ports %u to %u", ports[0],
             ports[1]);
    return text;
}

const char *fl_hosts_key_folder(const fl_hosts *hosts, const char *run_dir, char text[PATH_MAX])
{
    const char *slash = strrchr(hosts->key_path, '/');
    if (!hosts->apart || slash == NULL) {
        return run_dir;
    }
    snprintf(text, PATH_MAX, "%.*s", (int)(slash - hosts->key_path), hosts->key_path);
    return text;
}
