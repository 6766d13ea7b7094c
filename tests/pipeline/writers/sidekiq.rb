# Jobs written by Sidekiq itself: waiting, scheduled, one that failed and is to be tried again, one that is dead.
require "sidekiq"
require "sidekiq/api"

Sidekiq.configure_client { |config| config.redis = { url: ARGV[0] } }

class Mail
  include Sidekiq::Worker
  sidekiq_options queue: "mailers", retry: 5

  def perform(*) = raise("never run here")
end

3.times { |n| Mail.perform_async("user#{n}", n) }
Sidekiq::Client.push("class" => "Report", "args" => [{ "day" => 1 }], "queue" => "low", "tags" => ["slow"])
Mail.perform_in(3600, "later", 9)

failed = { "class" => "Mail", "args" => ["x"], "jid" => "f" * 24, "queue" => "mailers", "retry" => 5, "retry_count" => 2,
           "error_class" => "Timeout::Error", "error_message" => "took 31 s", "failed_at" => Time.now.to_f,
           "created_at" => Time.now.to_f }
Sidekiq.redis { |conn| conn.zadd("retry", (Time.now.to_f + 600).to_s, Sidekiq.dump_json(failed)) }
Sidekiq::DeadSet.new.kill(Sidekiq.dump_json(failed.merge("jid" => "d" * 24)), notify_failure: false)
