/* The program itself. The libraries are linked, so a missing one ended the process before this. */
#include "launcher/doctor/checks/doctor.h"

#include <jansson.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <png.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>
#include <zmq.h>

/* What workers of several hosts send each other is encrypted by the kernel where it can, else by
 * OpenSSL. The kernel may load its part when a program first asks for it. */
static const char *kernel_tls(void)
{
    char names[256] = "";
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_ulp", "re");
    bool is_known = file != NULL && fgets(names, (int)sizeof names, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return !is_known ? "whether the kernel has TLS is not known"
           : strstr(names, "tls") == NULL
               ? "the kernel has not loaded TLS, so that OpenSSL encrypts "
                 "between hosts"
               : "the kernel has TLS between hosts";
}

void fl_doctor_look_at_program(fl_findings *findings)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    fl_finding_add(findings, FL_VERDICT_OK, "version", "frostline %s", FL_VERSION);
    fl_finding_add(findings, FL_VERDICT_OK, "libraries",
                   "ZeroMQ %d.%d.%d, libyaml %s, jansson %s, microhttpd %s, xxHash %u.%u.%u, "
                   "zlib %s, libpng %s, OpenSSL %s, Gloo",
                   major, minor, patch, yaml_get_version_string(), jansson_version_str(),
                   MHD_get_version(), XXH_versionNumber() / 10000, XXH_versionNumber() / 100 % 100,
                   XXH_versionNumber() % 100, zlibVersion(), png_get_libpng_ver(NULL),
                   OpenSSL_version(OPENSSL_VERSION_STRING));
    if (zmq_has("curve") == 0) {
        fl_finding *f =
            fl_finding_add(findings, FL_VERDICT_WARNING, "encryption", "this ZeroMQ has no CURVE");
        fl_finding_advise(f, "jobs with control.listen: tcp://... are refused; install a ZeroMQ "
                             "that was built with libsodium");
    } else {
        fl_finding_add(findings, FL_VERDICT_OK, "encryption", "ZeroMQ has CURVE; %s", kernel_tls());
    }
}
