! Errors, waits and layouts, checked against `naa serve`: check ADDRESS
program check
    use, intrinsic :: iso_c_binding
    use naa
    implicit none

    character(256) :: address
    integer(c_int8_t), target :: numbers(1000), few(10)
    integer(c_int8_t), target :: arguments(NAA_BLOCK_BYTES), status(NAA_BLOCK_BYTES)
    real(c_double), target :: matrix(20, 30)
    type(naa_options) :: options, defaults
    type(naa_region) :: regions(2)
    type(naa_outcome) :: outcome, outcomes(2)
    type(c_ptr) :: session, other, buffer, sessions(2)
    logical(c_bool) :: ended
    type(naa_function), pointer :: functions(:)
    type(c_ptr) :: place
    integer(c_size_t) :: count
    integer(c_int32_t) :: state, fd, code
    integer(c_int64_t) :: index
    integer(c_size_t), parameter :: one = 1, two = 2, first = 0

    call get_command_argument(1, address)

    ! Texts and layouts.
    call hold(naa_code_of("increment") == 1, "the code of a name")
    call hold(naa_code_of("none such") == 0, "a name of nothing")
    call hold(naa_name_of(NAA_ERROR_GONE) == "NAA_ERROR_GONE", "names of results")
    call hold(naa_error_text() == "", "no error yet")
    call hold(naa_options_init(defaults, c_sizeof(defaults)) == NAA_OK, "naa_options has its size")
    call hold(defaults%struct_size == options%struct_size, "naa_options knows its size")
    call hold(c_sizeof(regions) == 48 .and. c_sizeof(outcome) == 80, "sizes of the other types")

    ! Errors, with their texts.
    options%setup_timeout_ms = 500
    call fails(naa_connect(session, "127.7.255.254", [naa_region_of(few, NAA_INOUT)], options), &
               [NAA_ERROR_UNREACHABLE, NAA_ERROR_REFUSED, NAA_ERROR_TIMEOUT], "nobody there")
    call hold(.not. c_associated(session), "no session after an error")
    call fails(naa_connect(session, "no address", [naa_region_of(few, NAA_INOUT)]), &
               [NAA_ERROR_ARGUMENT, NAA_ERROR_UNREACHABLE], "no address")
    call fails(naa_connect(session, address, [naa_region_of(matrix(1:20:2, :), NAA_INPUT)]), &
               [NAA_ERROR_ARGUMENT], "an array with gaps")
    call fails(naa_arguments(arguments, naa_code_of("increment"), [1_c_int64_t], one), &
               [NAA_ERROR_ARGUMENT], "arguments of a function that has none")
    call fails(naa_session_close(c_loc(numbers)), [NAA_ERROR_ARGUMENT], "no session")

    ! A call, waited for in each way.
    numbers = 5
    few = 7
    call done(naa_connect(session, address, [naa_region_of(numbers, NAA_INOUT)]))
    call done(naa_connect(other, address, [naa_region_of(few, NAA_INOUT)], options))
    sessions = [session, other]
    call done(naa_session_state(session, state))
    call hold(state == NAA_SESSION_IDLE, "an idle session")
    call hold(c_associated(naa_session_describe(session)), "its description")
    call done(naa_session_fd(session, fd))
    call hold(fd > 2, "a descriptor")
    call done(naa_call(session, naa_code_of("increment"), 0, 5000, outcome))
    call hold(all(numbers == 6) .and. outcome%function == 1 .and. outcome%last_output_bytes == 1000, "increment")
    call done(naa_call_start(other, naa_code_of("increment"), 0))
    call done(naa_call_wait_any(sessions, two, 5000, index, outcome))
    call hold(index == 1 .and. all(few == 8), "the first to end")
    call done(naa_call_start(session, naa_code_of("increment"), 0))
    call done(naa_call_start(other, naa_code_of("increment"), 0))
    call done(naa_call_wait_all(sessions, two, 5000, outcomes))
    call hold(all(outcomes%result == NAA_OK) .and. all(numbers == 7) .and. all(few == 9), "all")
    call done(naa_call_start(session, naa_code_of("increment"), 0))
    ended = .false.
    do while (.not. ended)
        call done(naa_call_test(session, ended, outcome))
    end do
    call hold(all(numbers == 8), "tested for")
    call fails(naa_call_wait(session, 0), [NAA_ERROR_STATE], "no call")

    ! What the accelerator has.
    code = -1
    call done(naa_find(session, "dgemm", code))
    call hold(code == naa_code_of("dgemm"), "a function by its name")
    call fails(naa_find(session, "none such", code), [NAA_ERROR_ARGUMENT], "a name that the accelerator does not have")
    call hold(code == 0, "no code after an error")
    call hold(has(naa_error_text(), "it has increment"), "the error names what there is")
    call done(naa_session_functions(session, place, count))
    call c_f_pointer(place, functions, [count])
    call hold(functions(1)%code == 1, "codes of its functions")
    call hold(naa_text_of(functions(1)%name) == "increment", "their names")
    call hold(naa_text_of(functions(1)%parameters) == "any", "their parameters")
    call hold(len(naa_text_of(functions(1)%description)) > 0, "what they do")

    call done(naa_session_set_range(other, first, 0_c_int64_t, 4_c_int64_t))
    call done(naa_session_set_range_all(other, first))
    call done(naa_session_close(session))
    call done(naa_session_close(other))

    ! What a function says of a failure: it is no argument block of its.
    arguments = 0
    regions = [naa_region_of(arguments, NAA_INPUT), naa_region_of(status, NAA_OUTPUT)]
    call done(naa_connect(session, address, regions))
    call fails(naa_call(session, naa_code_of("sort"), 0, 5000, outcome), [NAA_ERROR_FUNCTION], "a failure of a function")
    call hold(outcome%result == NAA_ERROR_FUNCTION .and. outcome%return_code /= 0, "its return code")
    call done(naa_session_close(session))

    ! Memory from the library.
    call done(naa_buffer_alloc(5000_c_int64_t, buffer))
    call hold(naa_buffer_size(buffer) == 5000, "a buffer")
    regions(1) = naa_region(naa_buffer_data(buffer), 5000, NAA_INOUT)
    call done(naa_connect(session, address, regions(:1)))
    call done(naa_call(session, naa_code_of("increment"), 0, 5000))
    call done(naa_session_close(session))
    call done(naa_buffer_free(buffer))
    call done(naa_buffer_wrap(c_loc(numbers), 1000_c_int64_t, buffer))
    call done(naa_buffer_free(buffer))
    print '(a)', "check: ok"

contains

    function has(text, part)
        character(*), intent(in) :: text, part
        logical :: has
        intrinsic :: index

        has = index(text, part) > 0
    end function

    subroutine hold(is, what)
        logical, intent(in) :: is
        character(*), intent(in) :: what

        if (is) return
        print '(2a)', "does not hold: ", what
        stop 1, quiet=.true.
    end subroutine

    subroutine done(result)
        integer(c_int32_t), intent(in) :: result

        if (result == NAA_OK) return
        print '(3a)', naa_name_of(result), ": ", naa_error_text()
        stop 1, quiet=.true.
    end subroutine

    subroutine fails(result, with, what)
        integer(c_int32_t), intent(in) :: result, with(:)
        character(*), intent(in) :: what

        print '(5a)', what, ": ", naa_name_of(result), ": ", naa_error_text()
        call hold(any(with == result), what)
        call hold(len(naa_error_text()) > 0, what)
    end subroutine
end program
