/* Gloo's own collectives, as its users call them: what the training group is measured against. */
#include "gloo_peer.h"

extern "C" {
#include "device/system/alloc.h"
#include "device/system/clock.h"
}

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

class Store : public gloo::rendezvous::Store
{
  public:
    explicit Store(const fl_kv *kv) : kv_(kv)
    {
    }
    void set(const std::string &key, const std::vector<char> &data) override
    {
        if (kv_->set(kv_->self, ("peer/" + key).c_str(), fl_deadline_us(20000), data.data(),
                     data.size()) != FL_OK) {
            throw std::runtime_error(fl_errmsg());
        }
    }
    std::vector<char> get(const std::string &key) override
    {
        void *data = nullptr;
        size_t n = 0;
        if (kv_->get(kv_->self, ("peer/" + key).c_str(), fl_deadline_us(20000), &data, &n) !=
            FL_OK) {
            throw std::runtime_error(fl_errmsg());
        }
        std::vector<char> copy(static_cast<char *>(data), static_cast<char *>(data) + n);
        fl_free(data);
        return copy;
    }
    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys) {
            get(key);
        }
    }

  private:
    const fl_kv *kv_;
};

} // namespace

struct gloo_peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
};

extern "C" gloo_peer *gloo_peer_open(int rank, int size, const fl_kv *kv)
{
    Store store(kv);
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    auto *peer = new gloo_peer();
    peer->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    peer->context->connectFullMesh(store, device);
    return peer;
}

extern "C" void gloo_peer_allreduce(gloo_peer *peer, float *data, size_t n)
{
    gloo::AllreduceOptions options(peer->context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, n);
    options.setReduceFunction([](void *to, const void *a, const void *b, size_t count) {
        gloo::sum<float>(to, a, b, count);
    });
    gloo::allreduce(options);
}

extern "C" void gloo_peer_close(gloo_peer *peer)
{
    delete peer;
}
