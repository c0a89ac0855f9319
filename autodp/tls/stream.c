#include "autodp/tls/stream.h"

#include "autodp/tls/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* TLS_AES_128_GCM_SHA256: the one cipher, so that it never depends on what the other end asks for.
 */
static const unsigned char cipher_id[2] = {0x13, 0x01};
static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";
static const char derivation[] = "frostline data plane 1";

fl_status fl_tls_transport(const char *key, fl_net_transport *out)
{
    unsigned n = 0;
    *out = (fl_net_transport){.ops = &fl_tls_net_ops};
    _Static_assert(sizeof out->secret == 32, "an HMAC-SHA256 fills it");
    return HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)derivation,
                sizeof derivation - 1, out->secret, &n) != NULL
               ? FL_OK
               : fl_fail(FL_EINTERNAL, "OpenSSL has no HMAC-SHA256");
}

/* ---- keys ---- */

/* Names the direction of a pair of a net; returns its length, 0: too long. */
static size_t write_id(const fl__tls_identity *identity, int from, int to, char id[FL__TLS_ID_MAX])
{
    int n = snprintf(id, FL__TLS_ID_MAX, "frostline/%d/%d/%s", from, to, identity->net);
    return n > 0 && n < FL__TLS_ID_MAX ? (size_t)n : 0;
}

/* The session of a key that both ends derive; NULL: it cannot be made. */
static SSL_SESSION *make_session(SSL *ssl, const fl__tls_identity *identity, const char *id,
                                 size_t n)
{
    unsigned char key[32];
    unsigned key_bytes = 0;
    SSL_SESSION *session = SSL_SESSION_new();
    bool good = session != NULL &&
                HMAC(EVP_sha256(), identity->secret, sizeof identity->secret,
                     (const unsigned char *)id, n, key, &key_bytes) != NULL &&
                SSL_SESSION_set1_id_context(session, (const unsigned char *)derivation,
                                            sizeof derivation - 1) == 1 &&
                SSL_SESSION_set1_master_key(session, key, key_bytes) == 1 &&
                SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, cipher_id)) == 1 &&
                SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(key, sizeof key);
    if (!good) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

/* A client's. */
static int use_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    fl__tls_stream *s = SSL_get_app_data(ssl);
    const fl__tls_identity *identity = s->identity;
    size_t n = write_id(identity, identity->rank, s->peer, s->id);
    *session = NULL;
    (void)md;
    if (n == 0 || (*session = make_session(ssl, identity, s->id, n)) == NULL) {
        return 0;
    }
    *id = (const unsigned char *)s->id;
    *id_bytes = n;
    return 1;
}

/* A server's: which member the client says it is. Without a session, the handshake fails, because
 * the server has no certificate. */
static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    fl__tls_stream *s = SSL_get_app_data(ssl);
    const fl__tls_identity *identity = s->identity;
    char text[FL__TLS_ID_MAX], mine[FL__TLS_ID_MAX];
    int from = -1;
    *session = NULL;
    if (id_bytes >= sizeof text) {
        return 1;
    }
    memcpy(text, id, id_bytes);
    text[id_bytes] = '\0';
    if (sscanf(text, "frostline/%4d/", &from) != 1 || from < 0 || from >= identity->size ||
        from == identity->rank) {
        return 1;
    }
    size_t n = write_id(identity, from, identity->rank, mine);
    if (n == id_bytes && memcmp(mine, id, n) == 0) {
        s->peer = from;
        *session = make_session(ssl, identity, mine, n);
    }
    return 1;
}

static bool set_up(SSL_CTX *c)
{
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_ENABLE_KTLS);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL); /* no certificate is ever trusted */
    SSL_CTX_set_psk_use_session_callback(c, use_key);
    SSL_CTX_set_psk_find_session_callback(c, find_key);
    return SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(c, cipher_name) == 1 &&
           SSL_CTX_set1_groups_list(c, "X25519") == 1 &&
           SSL_CTX_set_session_id_context(c, (const unsigned char *)derivation,
                                          sizeof derivation - 1) == 1 &&
           SSL_CTX_set_num_tickets(c, 0) == 1;
}

fl_status fl__tls_identity_open(fl__tls_identity *identity, const fl_net_options *options)
{
    *identity = (fl__tls_identity){.rank = options->rank, .size = options->size};
    memcpy(identity->secret, options->transport->secret, sizeof identity->secret);
    snprintf(identity->net, sizeof identity->net, "%s", options->name);
    char id[FL__TLS_ID_MAX];
    if (strlen(options->name) >= sizeof identity->net || write_id(identity, 9999, 9999, id) == 0) {
        return fl_fail(FL_EINVAL, "a net's name of %zu bytes, at most %zu are allowed",
                       strlen(options->name), sizeof identity->net - 1);
    }
    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL); /* the user's settings are for others */
    identity->context = SSL_CTX_new(TLS_method());
    identity->batches = fl__tls_batch_method();
    if (identity->context == NULL || identity->batches == NULL || !set_up(identity->context)) {
        return fl_fail(FL_EINTERNAL, "OpenSSL does not do TLS 1.3 with %s", cipher_name);
    }
    return FL_OK;
}

void fl__tls_identity_close(fl__tls_identity *identity)
{
    SSL_CTX_free(identity->context);
    BIO_meth_free(identity->batches);
    OPENSSL_cleanse(identity, sizeof *identity);
}

/* ---- connections ---- */

fl_status fl__tls_stream_open(fl__tls_stream *s, const fl__tls_identity *identity, int fd,
                              bool is_client, int peer)
{
    *s = (fl__tls_stream){.identity = identity, .fd = fd, .peer = peer};
    s->ssl = SSL_new(identity->context);
    if (s->ssl == NULL || SSL_set_fd(s->ssl, fd) != 1) {
        fl__tls_stream_close(s);
        ERR_clear_error();
        return fl_fail(FL_ENOMEM, "a TLS connection");
    }
    SSL_set_app_data(s->ssl, s);
    if (is_client) {
        SSL_set_connect_state(s->ssl);
    } else {
        SSL_set_accept_state(s->ssl);
    }
    return FL_OK;
}

void fl__tls_stream_close(fl__tls_stream *s)
{
    SSL_free(s->ssl);
    s->ssl = NULL;
    fl__tls_batch_close(&s->batch);
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
}

void fl__tls_stream_move(fl__tls_stream *to, fl__tls_stream *from)
{
    *to = *from;
    SSL_set_app_data(to->ssl, to);
    *from = (fl__tls_stream){.fd = -1};
}

/* What a call that returned `rc` <= 0 means: 0 or -1 of the functions of the header. */
static int explain(fl__tls_stream *s, int rc, int error_number)
{
    int error = SSL_get_error(s->ssl, rc);
    s->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        return 0;
    }
    unsigned long code = ERR_peek_last_error();
    const char *text = code == 0 ? NULL : ERR_reason_error_string(code);
    if (error == SSL_ERROR_SYSCALL && error_number != 0) {
        s->hung_up = true;
        text = strerror(error_number);
    } else if (error == SSL_ERROR_ZERO_RETURN || text == NULL ||
               ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        s->hung_up = true;
        text = "connection closed";
    }
    snprintf(s->why, sizeof s->why, "%s", text);
    ERR_clear_error();
    return -1;
}

/* What the kernel does not encrypt goes through a batch from now on. */
static bool use_batch(fl__tls_stream *s)
{
    BIO *bio = NULL;
    bool reads = !fl__tls_stream_in_kernel(s, false), writes = !fl__tls_stream_in_kernel(s, true);
    if (!reads && !writes) {
        return true;
    }
    if (fl__tls_batch_open(s->identity->batches, s->fd, &s->batch, &bio) != FL_OK) {
        return false;
    }
    if (reads) {
        BIO_up_ref(bio);
        SSL_set0_rbio(s->ssl, bio);
    }
    if (writes) {
        BIO_up_ref(bio);
        SSL_set0_wbio(s->ssl, bio);
    }
    BIO_free(bio);
    return true;
}

int fl__tls_stream_shake(fl__tls_stream *s)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_do_handshake(s->ssl);
    if (rc <= 0) {
        return explain(s, rc, errno);
    }
    s->wants_write = false;
    if (!SSL_session_reused(s->ssl) || s->peer < 0) {
        snprintf(s->why, sizeof s->why, "the other end has not proved which member it is");
        return -1;
    }
    if (s->batch == NULL && !use_batch(s)) {
        snprintf(s->why, sizeof s->why, "out of memory");
        return -1;
    }
    return 1;
}

ptrdiff_t fl__tls_stream_read(fl__tls_stream *s, void *to, size_t size_bytes)
{
    size_t n = 0, n_record = 0;
    int rc = 1;
    if (s->ended) {
        return -1;
    }
    if (s->batch != NULL) {
        fl__tls_batch_look(s->batch);
    }
    ERR_clear_error();
    for (; n < size_bytes && rc > 0; n += rc > 0 ? n_record : 0) {
        errno = 0;
        rc = SSL_read_ex(s->ssl, (unsigned char *)to + n, size_bytes - n, &n_record);
    }
    s->dry = rc <= 0;
    s->ended = s->dry && explain(s, rc, errno) < 0;
    return s->ended && n == 0 ? -1 : (ptrdiff_t)n;
}

static int flush_batch(fl__tls_stream *s)
{
    int rc = s->batch == NULL ? 1 : fl__tls_batch_flush(s->batch);
    if (rc < 0) {
        s->hung_up = true;
        snprintf(s->why, sizeof s->why, "%s", strerror(errno));
    }
    return rc;
}

/* One record at most; 0 or -1 as the functions of the header. */
static ptrdiff_t write_record(fl__tls_stream *s, const unsigned char *from, size_t size_bytes)
{
    size_t n = 0;
    errno = 0;
    int rc = SSL_write_ex(
        s->ssl, from, size_bytes < FL__TLS_RECORD_BYTES ? size_bytes : FL__TLS_RECORD_BYTES, &n);
    s->unsent = s->unsent || (rc > 0 && fl__tls_stream_in_kernel(s, true));
    return rc > 0 ? (ptrdiff_t)n : explain(s, rc, errno);
}

ptrdiff_t fl__tls_stream_write(fl__tls_stream *s, const void *from, size_t size_bytes)
{
    size_t n = 0;
    int flushed = flush_batch(s);
    if (flushed <= 0) {
        return flushed;
    }
    ERR_clear_error();
    while (n < size_bytes && (s->batch == NULL || fl__tls_batch_has_room(s->batch))) {
        ptrdiff_t more = write_record(s, (const unsigned char *)from + n, size_bytes - n);
        if (more <= 0) {
            return n > 0 ? (ptrdiff_t)n : more;
        }
        n += (size_t)more;
    }
    return flush_batch(s) < 0 ? -1 : (ptrdiff_t)n;
}

/* The kernel keeps a record that finds no room in the socket, and drops it when the socket is
 * closed. A socket that is ready for writing has room for all that is kept. */
static bool flush_kernel(fl__tls_stream *s)
{
    struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
    s->unsent = s->unsent && poll(&ready, 1, 0) <= 0;
    return !s->unsent;
}

int fl__tls_stream_flush(fl__tls_stream *s)
{
    int rc = flush_batch(s);
    return rc > 0 ? flush_kernel(s) : rc;
}

bool fl__tls_stream_is_flushed(const fl__tls_stream *s)
{
    return !s->unsent && (s->batch == NULL || fl__tls_batch_is_empty(s->batch));
}

void fl__tls_stream_expect(fl__tls_stream *s, size_t size_bytes)
{
    if (s->batch != NULL) {
        fl__tls_batch_expect(s->batch, size_bytes);
    }
}

bool fl__tls_stream_in_kernel(const fl__tls_stream *s, bool writing)
{
    return writing ? BIO_get_ktls_send(SSL_get_wbio(s->ssl)) != 0
                   : BIO_get_ktls_recv(SSL_get_rbio(s->ssl)) != 0;
}
