// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "server/object_headers.h"

namespace kvern::server {
namespace {

double milliseconds(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

Result<AccessLog> AccessLog::open(const std::string& path, std::size_t loops) {
    if (path.empty()) return AccessLog(-1, false, loops);
    if (path == "-") return AccessLog(STDOUT_FILENO, false, loops);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0) return tl::unexpected(error_from_errno(errno, "access log '" + path + "'"));
    return AccessLog(fd, true, loops);
}

AccessLog::AccessLog(AccessLog&& other) noexcept
    : fd_(other.fd_), owned_(std::exchange(other.owned_, false)), buffers_(std::move(other.buffers_)) {}

AccessLog::~AccessLog() {
    if (owned_) ::close(fd_);
}

void AccessLog::add(std::size_t loop, const Request& request, const Metrics::Request& facts, std::int64_t now_ns) {
    if (!on()) return;
    auto& buffer = buffers_[loop];
    // Keys are escaped as in URLs, so that any byte fits into JSON.
    fmt::format_to(std::back_inserter(buffer),
                   "{{\"time\":\"{}\",\"id\":\"{}\",\"peer\":\"{}\",\"access_key\":\"{}\",\"operation\":\"{}\","
                   "\"bucket\":\"{}\",\"key\":\"{}\",\"status\":{},\"error\":\"{}\",\"received_bytes\":{},"
                   "\"sent_bytes\":{},\"window_received_bytes\":{},\"window_sent_bytes\":{},"
                   "\"total_ms\":{:.3f},\"wire_ms\":{:.3f}}}\n",
                   iso_time(now_ns), request.id, request.exchange.peer(),
                   request.who == nullptr ? "" : url_escape(request.who->credentials.access_key),
                   to_string(facts.operation), url_escape(request.bucket), url_escape(request.key), facts.status,
                   request.error, facts.bytes_in, facts.bytes_out, facts.window_bytes_in, facts.window_bytes_out,
                   milliseconds(facts.total), milliseconds(facts.wire));
    if (buffer.size() >= limits::access_log_buffer_bytes) flush(loop);
}

void AccessLog::flush(std::size_t loop) {
    auto& buffer = buffers_[loop];
    std::string_view rest = buffer;
    while (!rest.empty()) {
        const auto written = ::write(fd_, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            if (!std::exchange(failed_, true)) {
                log(LogLevel::error, "server", error_from_errno(errno, "access log").message + "; lines are lost");
            }
            break;
        }
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
    buffer.clear();
}

}  // namespace kvern::server
