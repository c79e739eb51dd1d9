// SPDX-License-Identifier: Apache-2.0
#include "cli/plain_loops.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "cli/interrupt.h"

namespace kvern::cli {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double cpu_now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Times the work between its making and finish().
class Stopwatch {
  public:
    explicit Stopwatch(std::chrono::milliseconds bound) : end_(start_ + bound) {}
    bool over() const { return std::chrono::steady_clock::now() >= end_ || interrupted(); }
    void finish(PlainResult& result) const {
        result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        result.cpu_seconds = cpu_now() - cpu_start_;
    }

  private:
    double cpu_start_ = cpu_now();
    SteadyTime start_ = std::chrono::steady_clock::now();
    SteadyTime end_;
};

std::string system_text(const std::string& what, int error) {
    return what + ": " + std::generic_category().message(error);
}

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// A file system without O_TMPFILE (NFS) gets a temporary name instead.
std::string temporary_name(const std::string& path) {
    return path + ".plain";
}

struct OpenFile {
    int fd = -1;
    bool nameless = false;
};

OpenFile open_file(const PlainJob& job, const std::string& path) {
    const int direct = job.direct ? O_DIRECT : 0;
    if (!job.put) return {::open(path.c_str(), O_RDONLY | O_CLOEXEC | direct), false};
    const int fd = ::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC | direct, 0644);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return {fd, true};
    return {::open(temporary_name(path).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | direct, 0644), false};
}

// Publishes a put and closes; empty on success.
std::string end_file(const PlainJob& job, const OpenFile& file, const std::string& path) {
    std::string error;
    if (job.put && file.nameless) {
        const std::string self = "/proc/self/fd/" + std::to_string(file.fd);
        if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
            error = system_text("link " + path, errno);
        }
    } else if (job.put && ::rename(temporary_name(path).c_str(), path.c_str()) != 0) {
        error = system_text("rename " + path, errno);
    }
    ::close(file.fd);
    return error;
}

std::string move_file(const PlainJob& job, const std::string& path, std::byte* memory) {
    const OpenFile file = open_file(job, path);
    if (file.fd < 0) return system_text("open " + path, errno);
    std::size_t done = 0;
    while (done < job.size_bytes) {
        const auto offset = static_cast<off_t>(done);
        const ssize_t moved = job.put ? ::pwrite(file.fd, memory + done, job.size_bytes - done, offset)
                                      : ::pread(file.fd, memory + done, job.size_bytes - done, offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) {
            const std::string error = moved == 0 ? path + " is too short" : system_text(path, errno);
            ::close(file.fd);
            return error;
        }
        done += static_cast<std::size_t>(moved);
    }
    return end_file(job, file, path);
}

class UringLoop {
  public:
    explicit UringLoop(const PlainJob& job) : job_(job), slots_(job.depth) {}
    ~UringLoop() {
        if (ring_made_) io_uring_queue_exit(&ring_);
        for (const Slot& slot : slots_) {
            if (slot.file.fd >= 0) ::close(slot.file.fd);
        }
    }
    UringLoop(const UringLoop&) = delete;
    UringLoop& operator=(const UringLoop&) = delete;

    PlainResult run() {
        PlainResult result;
        if (const int error = make_ring(); error != 0) {
            result.error = system_text("io_uring", error);
            return result;
        }
        const Stopwatch watch(job_.bound);
        for (std::size_t i = 0; i < slots_.size(); ++i) begin_file(slots_[i], i);
        while (in_flight_ > 0 && error_.empty()) turn(watch);
        drain();
        watch.finish(result);
        result.bytes = files_ * job_.size_bytes;
        result.error = error_;
        return result;
    }

  private:
    struct Slot {
        std::string path;
        OpenFile file;
        std::byte* memory = nullptr;
        std::size_t done = 0;
    };

    int make_ring() {
        io_uring_params params{};
        params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
        int error = -io_uring_queue_init_params(job_.depth, &ring_, &params);
        if (error == EINVAL) error = -io_uring_queue_init(job_.depth, &ring_, 0);  // kernels before 6.0
        ring_made_ = error == 0;
        return error;
    }

    void begin_file(Slot& slot, std::size_t index) {
        if (next_ >= job_.paths.size()) return;
        slot.path = job_.paths[next_++];
        slot.memory = job_.memory + index * job_.size_bytes;
        slot.done = 0;
        slot.file = open_file(job_, slot.path);
        if (slot.file.fd < 0) {
            error_ = system_text("open " + slot.path, errno);
            return;
        }
        request(slot);
    }

    void request(Slot& slot) {
        io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);  // never null: at most `depth` are in flight
        const auto rest = static_cast<unsigned>(job_.size_bytes - slot.done);
        if (job_.put) {
            io_uring_prep_write(sqe, slot.file.fd, slot.memory + slot.done, rest, slot.done);
        } else {
            io_uring_prep_read(sqe, slot.file.fd, slot.memory + slot.done, rest, slot.done);
        }
        io_uring_sqe_set_data(sqe, &slot);
        ++in_flight_;
    }

    void turn(const Stopwatch& watch) {
        const int submitted = io_uring_submit_and_wait(&ring_, 1);
        if (submitted < 0 && submitted != -EINTR) error_ = system_text("io_uring_enter", -submitted);
        io_uring_cqe* cqe = nullptr;
        while (error_.empty() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
            Slot& slot = *static_cast<Slot*>(io_uring_cqe_get_data(cqe));
            const int moved = cqe->res;
            io_uring_cqe_seen(&ring_, cqe);
            --in_flight_;
            complete(slot, moved, watch);
        }
    }

    void complete(Slot& slot, int moved, const Stopwatch& watch) {
        if (moved <= 0 && moved != -EINTR && moved != -EAGAIN) {
            error_ = moved == 0 ? slot.path + " is too short" : system_text(slot.path, -moved);
            return;
        }
        if (moved > 0) slot.done += static_cast<std::size_t>(moved);
        if (slot.done < job_.size_bytes) {
            request(slot);
            return;
        }
        error_ = end_file(job_, slot.file, slot.path);
        slot.file.fd = -1;
        ++files_;
        if (error_.empty() && !watch.over()) begin_file(slot, static_cast<std::size_t>(&slot - slots_.data()));
    }

    // After an error the kernel may still write to our memory: wait for it.
    void drain() {
        io_uring_submit(&ring_);
        for (; in_flight_ > 0; --in_flight_) {
            io_uring_cqe* cqe = nullptr;
            while (io_uring_wait_cqe(&ring_, &cqe) == -EINTR) {
            }
            if (cqe == nullptr) return;
            io_uring_cqe_seen(&ring_, cqe);
        }
    }

    const PlainJob& job_;
    std::vector<Slot> slots_;
    io_uring ring_{};
    bool ring_made_ = false;
    std::size_t next_ = 0;
    std::size_t in_flight_ = 0;
    std::uint64_t files_ = 0;
    std::string error_;
};

}  // namespace

PlainResult uring_loop(const PlainJob& job) {
    return UringLoop(job).run();
}

PlainResult thread_loop(const PlainJob& job) {
    PlainResult result;
    std::atomic<std::size_t> next{0};
    std::atomic<std::uint64_t> files{0};
    std::mutex error_mutex;
    std::atomic<const Stopwatch*> watch{nullptr};
    std::barrier start(static_cast<std::ptrdiff_t>(job.depth) + 1);
    const auto work = [&](unsigned index) {
        start.arrive_and_wait();  // all threads exist
        start.arrive_and_wait();  // the clock runs
        for (std::size_t at = next++; at < job.paths.size() && !watch.load()->over(); at = next++) {
            const std::string error = move_file(job, job.paths[at], job.memory + index * job.size_bytes);
            if (!error.empty()) {
                const std::lock_guard lock(error_mutex);
                result.error = error;
                return;
            }
            ++files;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < job.depth; ++i) threads.emplace_back(work, i);
    start.arrive_and_wait();
    const Stopwatch running(job.bound);
    watch = &running;
    start.arrive_and_wait();
    for (std::thread& thread : threads) thread.join();
    running.finish(result);
    result.bytes = files * job.size_bytes;
    return result;
}

}  // namespace kvern::cli
