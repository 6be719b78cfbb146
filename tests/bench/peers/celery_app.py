"""Plain Celery: one task for each job."""

from celery import Celery

from tests.bench.peers.call import REDIS, call

app = Celery("bench", broker=REDIS)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, task_default_queue="bench-celery")


@app.task(name="deliver")
def deliver(number: int) -> None:
    call(number)


def enqueue(count: int) -> None:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for each in range(count):
            deliver.apply_async([each], producer=producer)
