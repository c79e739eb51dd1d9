// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <cstring>
#include <thread>

#include "http/http_fixture.h"

namespace kvern::http::testing {
namespace {

// Answers with what it was sent: method, target and body.
Task<void> echo(Exchange& exchange) {
    std::string body(std::size_t{8} << 20, '\0');
    const auto size = co_await exchange.read(std::as_writable_bytes(std::span(body)));
    if (!size) co_return;
    body.resize(*size);
    const auto text =
        std::string(exchange.request().method) + " " + std::string(exchange.request().target) + " " + body;
    (void)co_await exchange.answer(AnswerHead(200), text);
}

Task<void> ignore_body(Exchange& exchange) {
    (void)co_await exchange.answer(AnswerHead(403), "no");
}

std::string body_of(const std::string& answer) {
    const auto end = answer.find("\r\n\r\n");
    return end == std::string::npos ? "" : answer.substr(end + 4);
}

TEST(Server, AnswersARequestAndClosesWhenAsked) {
    LocalServer local(echo);
    RawClient client(local.server().port());
    client.send("GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const auto answer = client.receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_EQ(body_of(answer), "GET /a?b=c ");
}

TEST(Server, KeepsAConnectionAndAnswersPipelinedRequestsInOrder) {
    LocalServer local(echo);
    RawClient client(local.server().port());
    client.send(
        "PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"
        "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const auto answer = client.receive();
    const auto first = answer.find("PUT /1 abc"), second = answer.find("GET /2 "), third = answer.find("GET /3 ");
    EXPECT_LT(first, second);
    EXPECT_LT(second, third);
    EXPECT_NE(third, std::string::npos) << answer;
}

TEST(Server, ReadsChunkedBodiesInAnySplit) {
    LocalServer local(echo);
    RawClient client(local.server().port());
    client.send("PUT /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char c : std::string_view("4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nTrailer: t\r\n\r\n")) {
        client.send(std::string_view(&c, 1));
    }
    EXPECT_EQ(body_of(client.receive()), "PUT /c wikipedia");
}

TEST(Server, SaysContinueOnlyWhenTheBodyIsRead) {
    LocalServer reads(echo);
    RawClient one(reads.server().port());
    one.send("PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    EXPECT_EQ(one.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    one.send("ok");
    EXPECT_EQ(body_of(one.receive()), "PUT / ok");

    LocalServer refuses(ignore_body);
    RawClient two(refuses.server().port());
    two.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    const auto answer = two.receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 403")) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST(Server, AnEarlyAnswerReachesAPeerThatStillSends) {
    LocalServer local(ignore_body);
    RawClient client(local.server().port());
    client.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
    client.send(std::string(1 << 20, 'x'));
    EXPECT_TRUE(client.receive("no").starts_with("HTTP/1.1 403"));
}

TEST(Server, RefusesWhatIsNoHttp) {
    LocalServer local(echo);
    for (const std::string_view text : {
             "nonsense\r\n\r\n",
             "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
             "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
             "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
             "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
             "GET / HTTP/1.1\r\nHo st: x\r\n\r\n",
         }) {
        RawClient client(local.server().port());
        client.send(text);
        const auto answer = client.receive();
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 400")) << text << " -> " << answer;
    }
    RawClient client(local.server().port());
    client.send("GET / HTTP/1.1\r\nX: " + std::string(20000, 'a') + "\r\n\r\n");
    EXPECT_TRUE(client.receive().starts_with("HTTP/1.1 431"));
}

TEST(Server, EndsConnectionsThatAreTooSlow) {
    LocalServer local(echo, 1, nullptr, std::chrono::milliseconds(300));
    RawClient client(local.server().port());
    client.send("GET / HTT");
    EXPECT_EQ(client.receive(), "");
    RawClient stalled(local.server().port());
    stalled.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    (void)stalled.receive();  // ends
}

TEST(Server, StopLetsARequestFinishAndEndsIdleConnections) {
    auto local = std::make_unique<LocalServer>([](Exchange& exchange) -> Task<void> {
        co_await exchange.loop().sleep(std::chrono::milliseconds(300));
        (void)co_await exchange.answer(AnswerHead(200), "late");
    });
    RawClient idle(local->server().port()), busy(local->server().port());
    busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::thread stopper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_TRUE(local->server().stop(std::chrono::seconds(5)));
    });
    EXPECT_EQ(body_of(busy.receive()), "late");
    EXPECT_EQ(idle.receive(), "");
    stopper.join();
}

// ------------------------------------------------------------------------------------------------ with our own client

struct Fetching {
    explicit Fetching(const LocalServer& local, std::size_t connections = 4) : loop("client") {
        HttpClientOptions options;
        options.address = local.address();
        options.connections_max = connections;
        options.connect_limit = options.stall_limit = options.idle_limit = std::chrono::seconds(20);
        client = std::make_unique<HttpClient>(loop, options);
    }
    ~Fetching() {
        loop.post([this] { client.reset(); });
        (void)await(loop, [](Loop& l) -> Task<int> {
            co_await l.sleep(std::chrono::milliseconds(1));
            co_return 0;
        }(loop));
        loop.stop();
    }
    tl::expected<HttpAnswer, HttpFailure> operator()(const HttpRequest& request) {
        return await(loop, client->exchange(request));
    }
    Loop loop;
    std::unique_ptr<HttpClient> client;
};

TEST(HttpClient, ReceivesABodyStraightIntoSeveralBuffers) {
    LocalServer local([](Exchange& exchange) -> Task<void> {
        std::string body(6 << 20, 'b');
        body.front() = 'a';
        body.back() = 'c';
        (void)co_await exchange.answer(AnswerHead(200), body);
    });
    Fetching fetch(local);
    std::vector<std::byte> first(1 << 20), second(5 << 20);
    std::size_t seen = 0;
    const Arrived arrived = [&](std::span<const std::byte> bytes) { seen += bytes.size(); };
    const std::vector<Buffer> into{{first.data(), first.size()}, {second.data(), second.size()}};
    HttpRequest request;
    request.head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    request.into = into;
    request.arrived = &arrived;
    for (int round = 0; round < 3; ++round) {
        const auto answer = fetch(request);
        ASSERT_TRUE(answer) << answer.error().error.message;
        EXPECT_EQ(answer->body_bytes, std::size_t{6} << 20);
    }
    EXPECT_EQ(seen, std::size_t{18} << 20);
    EXPECT_EQ(first.front(), std::byte{'a'});
    EXPECT_EQ(second.back(), std::byte{'c'});
    EXPECT_EQ(local.server().connections(), 1U);
}

TEST(HttpClient, ReplacesAKeptConnectionThatTheServerClosed) {
    LocalServer local([](Exchange& exchange) -> Task<void> { (void)co_await exchange.answer(AnswerHead(200), "x"); }, 1,
                      nullptr, std::chrono::milliseconds(200));
    Fetching fetch(local);
    HttpRequest request;
    request.head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    request.text_body = true;
    ASSERT_TRUE(fetch(request));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // the server's own limit passes
    const auto answer = fetch(request);
    ASSERT_TRUE(answer) << answer.error().error.message;
    EXPECT_EQ(answer->text, "x");
}

TEST(HttpClient, RefusesABodyLargerThanItsBuffers) {
    LocalServer local(
        [](Exchange& exchange) -> Task<void> { (void)co_await exchange.answer(AnswerHead(200), "too long"); });
    Fetching fetch(local);
    std::vector<std::byte> room(4);
    const std::vector<Buffer> into{{room.data(), room.size()}};
    HttpRequest request;
    request.head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    request.into = into;
    const auto answer = fetch(request);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().error.code, ErrorCode::io);
}

TEST(HttpClient, SaysWhoRefusedAConnection) {
    unsigned port = 0;
    {
        LocalServer gone(echo);
        port = gone.server().port();
    }
    Loop loop("client");
    HttpClientOptions options;
    options.address = {"127.0.0.1", std::to_string(port)};
    options.connect_limit = options.stall_limit = options.idle_limit = std::chrono::seconds(5);
    HttpClient client(loop, options);
    HttpRequest request;
    request.head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const auto answer = await(loop, client.exchange(request));
    ASSERT_FALSE(answer);
    EXPECT_TRUE(answer.error().unsent);
    EXPECT_NE(answer.error().error.message.find("127.0.0.1:" + std::to_string(port)), std::string::npos)
        << answer.error().error.message;
    loop.stop();
}

TEST(HttpClient, ManyRequestsShareFewConnections) {
    LocalServer local(echo, 2);
    Fetching fetch(local, 3);
    constexpr std::size_t count = 200;
    struct One {
        std::string text;
        std::vector<Buffer> body;
        HttpRequest request;
    };
    std::vector<std::unique_ptr<One>> all;
    std::vector<std::future<std::string>> answers;
    for (std::size_t i = 0; i < count; ++i) {
        auto& one = *all.emplace_back(std::make_unique<One>());
        one.text = std::string(i * 97, static_cast<char>('a' + i % 26));
        one.body = {{reinterpret_cast<std::byte*>(one.text.data()), one.text.size()}};
        one.request.head = "PUT /" + std::to_string(i) +
                           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(one.text.size()) + "\r\n\r\n";
        one.request.body = one.body;
        one.request.text_body = true;
        auto promise = std::make_shared<std::promise<std::string>>();
        answers.push_back(promise->get_future());
        fetch.loop.spawn(
            [](HttpClient& client, const One& sent, std::shared_ptr<std::promise<std::string>> done) -> Task<void> {
                const auto answer = co_await client.exchange(sent.request);
                done->set_value(answer ? answer->text : answer.error().error.message);
            }(*fetch.client, one, promise));
    }
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(answers[i].get(), "PUT /" + std::to_string(i) + " " + all[i]->text);
    }
    EXPECT_LE(local.server().connections(), 3U);
}

}  // namespace
}  // namespace kvern::http::testing
