// SPDX-License-Identifier: Apache-2.0
#include "http/loop.h"

#include <pthread.h>
#include <signal.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>

#include "kvern/limits.h"

namespace kvern::http {

namespace asio = boost::asio;

struct Loop::Impl {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    asio::steady_timer timer{context};
    std::list<asio::posix::stream_descriptor> descriptors;
    bool ticking = false;
};

void Watched::make_known() {
    known_ = true;
    next_ = loop_.watched_;
    if (next_ != nullptr) next_->previous_ = this;
    loop_.watched_ = this;
    if (!loop_.impl_->ticking) loop_.tick();
}

Watched::~Watched() {
    if (!known_) return;
    if (next_ != nullptr) next_->previous_ = previous_;
    (previous_ != nullptr ? previous_->next_ : loop_.watched_) = next_;
}

Loop::Loop(std::string name) : impl_(std::make_unique<Impl>()) {
    thread_ = std::thread([this, name = std::move(name)] {
        // Signals are the main thread's; a broken pipe under TLS is an answer of write().
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        impl_->context.run();
    });
}

Loop::~Loop() {
    stop();
    for (auto& descriptor : impl_->descriptors) descriptor.release();
}

void Loop::post(std::function<void()> work) {
    asio::post(impl_->context, std::move(work));
}

void Loop::spawn(Task<void> task) {
    // std::function wants copies; the task is moved through a shared holder.
    auto holder = std::make_shared<Task<void>>(std::move(task));
    post([holder] { detach(std::move(*holder)); });
}

void Loop::stop() {
    if (!thread_.joinable()) return;
    impl_->context.stop();
    thread_.join();
}

void Loop::Sleep::await_suspend(std::coroutine_handle<> waiter) {
    auto timer = std::make_shared<asio::steady_timer>(loop.context(), duration);
    timer->async_wait([timer, waiter](const boost::system::error_code&) { waiter.resume(); });
}

void Loop::watch(int fd, std::function<void()> ready) {
    auto& descriptor = impl_->descriptors.emplace_back(impl_->context, fd);
    struct Wait {
        asio::posix::stream_descriptor& descriptor;
        std::shared_ptr<std::function<void()>> ready;
        void operator()(const boost::system::error_code& error) {
            if (error) return;
            (*ready)();
            descriptor.async_wait(asio::posix::stream_descriptor::wait_read, std::move(*this));
        }
    };
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                          Wait{descriptor, std::make_shared<std::function<void()>>(std::move(ready))});
}

asio::io_context& Loop::context() {
    return impl_->context;
}

void Loop::tick() {
    impl_->ticking = watched_ != nullptr;
    if (!impl_->ticking) return;
    impl_->timer.expires_after(limits::http_tick);
    impl_->timer.async_wait([this](const boost::system::error_code& error) {
        if (error) return;
        const auto time = now();
        for (auto* one = watched_; one != nullptr;) {
            auto* const next = one->next_;  // overdue() only cancels; what it wakes runs later
            if (one->until_ <= time) {
                one->no_limit();
                one->overdue();
            }
            one = next;
        }
        tick();
    });
}

}  // namespace kvern::http
