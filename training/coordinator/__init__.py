"""The coordinator of a job: decides, and computes nothing.

======================= ==========================================================================================
``coordinator``         the loop: passes on messages and events, and does what is due by time
``roster``              the tasks there are
``grants``              the tasks there should be, by node
``membership``          starts and ends tasks until the roster is as granted
``training``            hands out samples, commits gradients: the steps of the training itself
``state``               moves the parameters: to the first servers, into checkpoints, to other servers, back
``validation``          loss and accuracy of a version
``balance``             who gets how much of a step, and how many threads
``wishes``              whether more or fewer tasks would help
``control``             what others ask of the job while it runs
``record``              what is written about the run
======================= ==========================================================================================
"""
